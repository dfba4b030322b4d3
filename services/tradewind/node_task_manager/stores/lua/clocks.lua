--!include records
-- The clocks of a running attempt: its lease, its own time limit, and how long it may be silent.

-- When the reaper looks at it, were its lease renewed now: no renewal outlasts the other clocks.
local function lease_until(record)
  local close_at, beat_by = record.close_at or 0, tonumber(more(record).beat_by)
  local till = time + limits.lease
  if close_at > 0 then till = math.min(till, close_at + limits.stop_grace) end
  return beat_by and math.min(till, beat_by) or till
end

local function hold(record) leasing.begin(record, lease_until(record)) end

-- A sign of life: the time that the attempt may be silent begins anew; `beat` is how long that is.
local function heard_of(record, beat)
  if record.stop then return end
  set(record, 'beat_by', time + beat)
  hold(record)
end
