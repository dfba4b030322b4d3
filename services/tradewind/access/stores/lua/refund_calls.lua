-- Counts calls of a user to an endpoint less for a day, never less than none. KEYS: the day's counts by endpoint.
-- args: endpoint, calls. Returns how many are left.
local key = KEYS[1]
local left = tonumber(redis.call('HGET', key, args.endpoint) or 0) - args.calls
if left > 0 then
  redis.call('HSET', key, args.endpoint, left)
  return cmsgpack.pack(left)
end
redis.call('HDEL', key, args.endpoint)
return cmsgpack.pack(0)
