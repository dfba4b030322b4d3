-- Counts the results of a cache that have not expired.
-- KEYS: index. args: now. Returns their number.
--!no-writes
return cmsgpack.pack(redis.call('ZCOUNT', KEYS[1], '(' .. string.format('%.0f', now(args.now)), '+inf'))
