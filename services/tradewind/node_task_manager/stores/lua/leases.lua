--!include claim
--!include clocks
-- Renewing the leases that a worker names.
local function holds(record, held) return record and record.status == 'running' and record.nonce == held.nonce end

-- Why a named token that holds no lease is lost; nil for one whose end was reported.
local function why_lost(record, held)
  if not record then return 'no such node task' end
  if record.nonce == held.nonce and TERMINAL[record.status] or retries.has_failed(record, held.nonce) then return end
  return 'the lease lapsed'
end

-- One that is to stop is not renewed.
local function extend(record)
  if record.stop then return stopping.tell(record, record.stop) end
  hold(record)
end
