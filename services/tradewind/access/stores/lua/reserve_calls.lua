-- Counts calls of a user to an endpoint for a day, if it does not have too many then. KEYS: the day's counts by endpoint.
-- args: endpoint, most, calls, kept_ms (for how long from now what is counted is kept, at least). Returns 1 when they were
-- counted, else 0.
local key = KEYS[1]
local used = tonumber(redis.call('HGET', key, args.endpoint) or 0)
if used + args.calls > args.most then return cmsgpack.pack(0) end
redis.call('HINCRBY', key, args.endpoint, args.calls)
if redis.call('PTTL', key) < args.kept_ms then redis.call('PEXPIRE', key, args.kept_ms) end
return cmsgpack.pack(1)
