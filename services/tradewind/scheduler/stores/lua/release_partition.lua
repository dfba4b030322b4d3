-- Ends the lease of a partition if it still is the caller's.
-- KEYS: 1 owner, 2 lease.
-- args: base, epoch, now.
-- Returns whether it was.
--!include partition
if redis.call('GET', KEYS[2]) ~= tostring(args.epoch) then return cmsgpack.pack(false) end
redis.call('DEL', KEYS[2])
return cmsgpack.pack(true)
