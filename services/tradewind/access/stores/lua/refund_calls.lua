-- Takes calls of a user to an endpoint off a day's count, which never falls below 0. KEYS: the day's counts by
-- endpoint. args: endpoint, calls. Returns the count that is left.
local key = KEYS[1]
local left = tonumber(redis.call('HGET', key, args.endpoint) or 0) - args.calls
if left > 0 then
  redis.call('HSET', key, args.endpoint, left)
  return cmsgpack.pack(left)
end
redis.call('HDEL', key, args.endpoint)
return cmsgpack.pack(0)
