--!include records
-- Reads workers that are alive, not draining and offer a node type, least loaded first. KEYS: as records.lua, then the
-- workers that offer the type. args: limit, max_bytes. Returns {time, records}.
call('ZREMRANGEBYSCORE', KEYS[7], '-inf', alive_after)
call('ZCARD', LOADS)  -- ZINTER names no key that is of another type.
local rows, bytes = {}, 0
for _, id in ipairs(redis.call('ZINTER', 2, KEYS[7], LOADS, 'WEIGHTS', 0, 1)) do
  if #rows == args.limit or bytes > args.max_bytes then break end
  local row = record(id)
  if row then
    rows[#rows + 1] = row
    bytes = bytes + size(row)
  end
end
return answer({time, rows})
