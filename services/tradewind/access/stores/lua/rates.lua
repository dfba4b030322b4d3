--!include time
-- Counts calls in a sliding window; `key` holds the times of the admitted calls. args: now_ms.
-- Returns 0 when the calls are admitted. Otherwise it counts nothing and returns the milliseconds until they would be.
local AT_ONCE = 1000
local function admit(key, count, period_ms, calls)
  local newest = tonumber(redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2] or 0)
  if newest > time + period_ms then
    -- The store's clock was wrong when it counted these: they would stay in the window until it is that late.
    redis.call('DEL', key)
    newest = 0
  end
  local time = math.max(time, newest)
  redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', time - period_ms))
  local used = redis.call('ZCARD', key)
  local over = used + calls - count
  if over > 0 then
    local frees = redis.call('ZRANGE', key, over - 1, over - 1, 'WITHSCORES')[2]
    return frees and tonumber(frees) + period_ms - time or period_ms
  end
  local at, added = string.format('%.0f', time), {}
  for number = used + 1, used + calls do
    added[#added + 1] = at
    added[#added + 1] = at .. '-' .. number
    if #added == AT_ONCE or number == used + calls then
      redis.call('ZADD', key, unpack(added))
      added = {}
    end
  end
  redis.call('PEXPIRE', key, period_ms)
  return 0
end
