-- Gives up the lease of whoever cleans.
-- KEYS[1] any key of the shard. args: base, cleaner (who gives it up). Returns whether it was theirs.
local key = args.base .. 'cleaner'
return cmsgpack.pack(redis.call('GET', key) == args.cleaner and redis.call('DEL', key) == 1)
