-- What comes first in a partition, and who must hear when that changes.
local function head(key)
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  return first[2] and tonumber(first[2]) or nil
end

-- Wakes the receiver of a partition, or those of the queue `args.queue`, that sleep until `former`, when there is something earlier for it now.
local function wake(channel, former, earliest)
  if earliest and (not former or earliest < former) then
    local queue = args.queue and args.queue ~= '' and ' ' .. args.queue or ''
    redis.call('PUBLISH', channel, string.format('due %.0f', earliest) .. queue)
  end
end

-- Both heads, and this server's time in microseconds: what a receiver needs in order to sleep until exactly then.
local function survey(due, claimed, now_ms)
  local now_us = now_ms * 1000
  if args.now_ms == 0 then
    local time = redis.call('TIME')
    now_us = tonumber(time[1]) * 1000000 + tonumber(time[2])
  end
  return { due = head(due), lapse = head(claimed), now_us = now_us }
end
