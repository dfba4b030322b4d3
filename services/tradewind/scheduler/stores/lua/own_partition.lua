-- Takes a partition whose lease has lapsed. The epoch outlives leases and never falls, also past a loss of the store's
-- last second: it follows the clock.
-- KEYS: 1 owner, 2 lease.
-- args: base, epoch (0), now, replica, lease (ms), force (take it from whoever holds it).
-- Returns the new epoch, 0 when somebody holds the lease.
--!include partition
if not args.force and redis.call('EXISTS', KEYS[2]) == 1 then return cmsgpack.pack(0) end
local epoch = math.max(tonumber(redis.call('HGET', KEYS[1], 'epoch') or 0) + 1, time)
redis.call('HSET', KEYS[1], 'replica', args.replica, 'epoch', epoch)
redis.call('SET', KEYS[2], epoch, 'PX', args.lease)
return cmsgpack.pack(epoch)
