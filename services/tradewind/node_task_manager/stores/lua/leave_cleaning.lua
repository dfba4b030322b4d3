-- Gives up the lease of the cleaner.
-- KEYS[1] any key of the shard. args: base, cleaner (the calling replica). Returns whether the caller held it.
local key = args.base .. 'cleaner'
return cmsgpack.pack(redis.call('GET', key) == args.cleaner and redis.call('DEL', key) == 1)
