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

-- One that is to stop is not renewed. Of a worker that was away nothing could be heard until now, when it is `back`.
local function extend(record, back)
  if record.stop then return stopping.tell(record, record.stop) end
  local beat = back and tonumber(more(record).beat)
  if beat then heard_of(record, beat) else hold(record) end
end
