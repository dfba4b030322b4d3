--!include rates
-- Counts calls of a user to an endpoint for a day, if the day has room for them and a rate admits them. KEYS: the
-- user's hash, the day's counts by endpoint, the times of the admitted calls. args: now_ms, time_zone (of the day),
-- endpoint, limit (calls for the day), calls, kept_ms (how long from now the counts are kept, at least), rate ({count,
-- period_ms}, or nil for none).
-- Returns {the user's time zone if it differs, else "", whether the day is full, milliseconds until the rate would
-- admit the calls}. The calls were counted if this is {"", false, 0}.
local zone = plain(redis.call('HGET', KEYS[1], 'time_zone') or 'UTC')
if zone ~= args.time_zone then return cmsgpack.pack({zone, false, 0}) end
local key = KEYS[2]
local used = tonumber(redis.call('HGET', key, args.endpoint) or 0)
if used + args.calls > args.limit then return cmsgpack.pack({'', true, 0}) end
local wait = args.rate and admit(KEYS[3], args.rate[1], args.rate[2], args.calls) or 0
if wait > 0 then return cmsgpack.pack({'', false, wait}) end
redis.call('HINCRBY', key, args.endpoint, args.calls)
if redis.call('PTTL', key) < args.kept_ms then redis.call('PEXPIRE', key, args.kept_ms) end
return cmsgpack.pack({'', false, 0})
