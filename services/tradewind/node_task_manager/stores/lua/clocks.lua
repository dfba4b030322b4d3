--!include records
-- The clocks of a running attempt: its lease, its own time limit, and how long it may be silent.
local clocks = {}
do
  local lease_end
  fresh(function() lease_end = nil end)

  -- Formats a length of time for people: `5 min` for 300000.
  function clocks.duration_text(ms)
    for _, unit in ipairs({{86400000, 'd'}, {3600000, 'h'}, {60000, 'min'}, {1000, 's'}}) do
      if ms > 0 and ms % unit[1] == 0 then return string.format('%.0f %s', ms / unit[1], unit[2]) end
    end
    return string.format('%.0f ms', ms)
  end

  -- Returns the planned time of a cycle that is due in a moment; nil, as mostly, once it is due.
  function clocks.due_at(comp)
    return comp.planned and comp.planned > time and math.min(comp.planned, time + limits.max_ahead_ms) or nil
  end

  -- Returns when an attempt that begins now starts, when its time is over (0 for never), and when its lease lapses. An
  -- attempt of a cycle that is due in a moment starts at the planned time.
  function clocks.begin(record, entry, comp, attempt)
    local early = clocks.due_at(comp)
    local close, plain = entry.close, not early and attempt == 1 and not entry.total and not entry.beat
    if plain and (close == 0 or close + limits.stop_grace_ms >= limits.lease_ms) then
      lease_end = lease_end or string.format('%.0f', time + limits.lease_ms)
      return stamp, close > 0 and time + close or 0, lease_end
    end
    local begin = early or time
    local close_at = close > 0 and begin + close or 0
    if entry.total then
      local total_at = tonumber(read_rest(record).total_at)
      close_at = close_at > 0 and math.min(close_at, total_at) or total_at
    end
    local deadline = time + limits.lease_ms
    if close_at > 0 then deadline = math.min(deadline, close_at + limits.stop_grace_ms) end
    if entry.beat then
      note(record, 'beat', entry.beat)
      note(record, 'beat_by', begin + entry.beat)
      deadline = math.min(deadline, begin + entry.beat)
    end
    return early and string.format('%.0f', begin) or stamp, close_at, deadline
  end

  -- Renews a lease; none outlasts the attempt's other clocks.
  function clocks.renew(record)
    local close_at, beat_by = record.close_at or 0, tonumber(read_rest(record).beat_by)
    local till = time + limits.lease_ms
    if close_at > 0 then till = math.min(till, close_at + limits.stop_grace_ms) end
    leasing.begin(record, beat_by and math.min(till, beat_by) or till)
  end

  -- Notes a sign of life: the attempt may be silent for another `beat` ms.
  function clocks.note_heartbeat(record, beat)
    if record.stop then return end
    set(record, 'beat_by', time + beat)
    clocks.renew(record)
  end
end
