-- Notes that a replica is here for a while, or that it leaves, and forgets replicas whose time has lapsed.
-- KEYS: 1 the replicas.
-- args: now, replica, keep (ms; 0 to leave), alone (no other replica runs).
-- Returns {now, whether the replica had no entry, the names of all that are here}.
local time = now(args.now)
-- A key of another type names no replica.
local readable = type(redis.pcall('ZREMRANGEBYSCORE', KEYS[1], '-inf', time)) == 'number'
if args.alone or not readable then redis.call('DEL', KEYS[1]) end
local lapsed = false
if args.keep > 0 then
  lapsed = redis.call('ZADD', KEYS[1], time + args.keep, args.replica) == 1
  redis.call('PEXPIRE', KEYS[1], args.keep)
else
  redis.call('ZREM', KEYS[1], args.replica)
end
return cmsgpack.pack({time, lapsed, redis.call('ZRANGE', KEYS[1], 0, -1)})
