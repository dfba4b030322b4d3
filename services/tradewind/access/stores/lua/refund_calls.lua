-- Takes calls of a user to an endpoint off a day's count, which never falls below 0. KEYS: the day's counts by
-- endpoint. args: endpoint, calls. Returns true.
local key = KEYS[1]
local left = tonumber(redis.call('HGET', key, args.endpoint) or 0) - args.calls
if left > 0 then
  redis.call('HSET', key, args.endpoint, left)
else
  redis.call('HDEL', key, args.endpoint)
end
return cmsgpack.pack(true)
