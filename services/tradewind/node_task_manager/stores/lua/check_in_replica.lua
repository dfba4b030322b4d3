-- Notes that a replica is here for a while, or that it leaves, and forgets replicas whose time has lapsed.
-- KEYS[1] the replicas. args: now, name, keep (ms; 0 to leave). Returns the names of all that are here.
local time = now(args.now)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', time)
if args.keep > 0 then
  redis.call('ZADD', KEYS[1], time + args.keep, args.name)
  redis.call('PEXPIRE', KEYS[1], args.keep + 600000)
else
  redis.call('ZREM', KEYS[1], args.name)
end
return cmsgpack.pack(redis.call('ZRANGE', KEYS[1], 0, -1))
