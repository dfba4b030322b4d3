-- Releases a partition if the caller still owns it. The epoch stays.
-- KEYS: 1 owner.
-- args: base, epoch, now.
-- Returns whether the caller owned it.
--!include partition
if call('HGET', KEYS[1], 'epoch') ~= tostring(args.epoch) then return cmsgpack.pack(false) end
call('HSET', KEYS[1], 'replica', '')
return cmsgpack.pack(true)
