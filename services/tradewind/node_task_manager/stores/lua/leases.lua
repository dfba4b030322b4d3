--!include claim
-- Renews the leases that a worker names.

-- Returns why a named attempt that holds no lease is lost; nil when its end was reported.
local function loss_reason(record, held)
  if not record then return 'no such node task' end
  if record.nonce == held.nonce and TERMINAL[record.status] or retries.has_failed(record, held.nonce) then return end
  return 'the lease lapsed'
end

-- Renews a lease, unless the node task is to stop. If the worker is `back` after it was away, this counts as a sign of
-- life: until now it could give none.
local function extend(record, back)
  if record.stop then return stopping.add_termination(record, record.stop) end
  local beat = back and tonumber(read_rest(record).beat)
  if beat then clocks.note_heartbeat(record, beat) else clocks.renew(record) end
end
