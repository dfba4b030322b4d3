-- Takes a flow out of the outbox after the trigger service has confirmed its epoch, unless the epoch has changed since.
-- KEYS: 1 owner, 2 hash of the flow.
-- args: base, epoch (0), now, flow_id, schedule_epoch.
-- Returns whether nothing is left to confirm.
--!include partition
local known = call('HGET', KEYS[2], 'schedule_epoch')
if known and tonumber(known) ~= args.schedule_epoch then return cmsgpack.pack(false) end
call('ZREM', base .. 'outbox', args.flow_id)
return cmsgpack.pack(true)
