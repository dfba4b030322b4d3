--!include records
-- Deletes a worker's record, unless it belongs to another incarnation than the one named. KEYS: as records.lua, then
-- the worker. args: worker_id, incarnation ('' for any). Returns whether it was deleted.
local row = record(args.worker_id)
if not row or (args.incarnation ~= '' and args.incarnation ~= row[INCARNATION]) then return answer(false) end
for _, name in ipairs(cjson.decode(row[TYPES])) do call('ZREM', offering_key(name), args.worker_id) end
redis.call('DEL', KEYS[7])
unlist(args.worker_id)
return answer(true)
