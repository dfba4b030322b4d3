-- Finds the first entries of a partition's indexes, and wakes receivers when they change.
--!include kinds

-- Returns the score of the first entry, nil when there is none. `ask` is how to read the index: `need`, or `note`.
local function head(key, ask)
  local first = (ask or need)('ZRANGE', key, 0, 0, 'WITHSCORES')
  return first and first[2] and tonumber(first[2])
end

-- Returns the earlier of two times, of which either may be nil.
local function earlier(one, other)
  if one and other then
    return math.min(one, other)
  end
  return one or other
end

-- Wakes the receiver of a partition, or those of the queue `args.queue`, if they sleep until `former` and something is
-- due earlier than that.
local function wake(channel, former, earliest)
  if earliest and (not former or earliest < former) then
    local queue = args.queue and args.queue ~= '' and ' ' .. args.queue or ''
    redis.call('PUBLISH', channel, string.format('due %.0f', earliest) .. queue)
  end
end

-- Returns both heads and this server's time in microseconds, so that a receiver can sleep until exactly the right time.
local function survey(due, lapse, now_ms)
  local now_us = now_ms * 1000
  if args.now_ms == 0 then
    local time = redis.call('TIME')
    now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
  end
  return { due = due, lapse = lapse, now_us = now_us }
end
