--!include records
-- The clocks of a running attempt: its lease, its own time limit, and how long it may be silent.

-- Returns when a lease that is renewed now lapses: no renewal outlasts the attempt's other clocks.
local function lease_until(record)
  local close_at, beat_by = record.close_at or 0, tonumber(read_rest(record).beat_by)
  local till = time + limits.lease
  if close_at > 0 then till = math.min(till, close_at + limits.stop_grace) end
  return beat_by and math.min(till, beat_by) or till
end

local function renew(record) leasing.begin(record, lease_until(record)) end

-- Notes a sign of life: the attempt may be silent for another `beat` ms.
local function record_heartbeat(record, beat)
  if record.stop then return end
  set(record, 'beat_by', time + beat)
  renew(record)
end
