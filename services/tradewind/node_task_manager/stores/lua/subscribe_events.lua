-- Raises the epoch of a partition's subscription.
-- KEYS[1] events_epoch:<partition>. args: epoch. Returns false when a higher one is known.
local known = tonumber(redis.call('GET', KEYS[1]) or 0)
if args.epoch < known then return cmsgpack.pack(false) end
redis.call('SET', KEYS[1], args.epoch)
return cmsgpack.pack(true)
