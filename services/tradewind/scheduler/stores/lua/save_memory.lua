-- Writes the variables that a flow carries from cycle to cycle, if they still have the version that was read.
-- KEYS: 1 owner, 2 hash of the flow, 3 its memory.
-- args: base, epoch (0), now, flow_id, version (expected), memory (text).
-- Returns {outcome (ok, conflict, missing), version on record}.
--!include partition
local status = call('HGET', KEYS[2], 'status')
if not status or status == 'deleting' then return cmsgpack.pack({'missing', 0}) end
local version = tonumber(call('HGET', KEYS[3], 'version') or 0)
if version ~= args.version then return cmsgpack.pack({'conflict', version}) end
call('HSET', KEYS[3], 'version', version + 1, 'memory', args.memory)
return cmsgpack.pack({'ok', version + 1})
