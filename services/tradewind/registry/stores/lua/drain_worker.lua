--!include records
-- Marks a worker as draining. KEYS: as records.lua, then the worker. args: worker_id.
-- Returns {time, the record, or nothing when the worker is not on record}.
local row = record(args.worker_id)
if not row then return answer({time, {}}) end
drain(row)
return answer({time, row})
