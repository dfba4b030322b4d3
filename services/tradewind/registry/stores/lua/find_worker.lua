--!include records
-- Reads a worker. KEYS: as records.lua, then the worker. args: worker_id.
-- Returns {time, the record, or nothing when the worker is not on record}.
return answer({time, record(args.worker_id) or {}})
