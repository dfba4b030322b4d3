-- Counts calls of a user to an endpoint in a sliding window, those admitted only. KEYS: the times of the admitted calls.
-- args: now_ms, count, period_ms, cost (how many calls at once). Returns 0 when they are admitted, else the milliseconds
-- until they would be.
local key, time = KEYS[1], now(args.now_ms)
local newest = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
if newest then time = math.max(time, tonumber(newest)) end
redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', time - args.period_ms))
local used = redis.call('ZCARD', key)
local over = used + args.cost - args.count
if over > 0 then
  local frees = redis.call('ZRANGE', key, over - 1, over - 1, 'WITHSCORES')[2]
  return cmsgpack.pack(frees and tonumber(frees) + args.period_ms - time or args.period_ms)
end
local at = string.format('%.0f', time)
for number = used + 1, used + args.cost do
  redis.call('ZADD', key, at, at .. '-' .. number)
end
redis.call('PEXPIRE', key, args.period_ms)
return cmsgpack.pack(0)
