-- Raises the schedule epoch of a flow whose trigger has a higher one, because the store has lost its last second.
-- KEYS: 1 owner, 2 hash of the flow.
-- args: base, epoch (0), now, flow_id.
-- Returns the new epoch, 0 when the flow does not exist.
--!include partition
local known = call('HGET', KEYS[2], 'schedule_epoch')
if not known then return cmsgpack.pack(0) end
local epoch = math.max(tonumber(known) + 1, time)
call('HSET', KEYS[2], 'schedule_epoch', epoch)
return cmsgpack.pack(epoch)
