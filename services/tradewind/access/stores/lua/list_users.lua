-- Reads users of a partition by id. KEYS: the index of users. args: base, after, limit.
-- Returns {user_id, role, updated_at, time_zone or ""} of each.
local ids = redis.call('ZRANGEBYLEX', KEYS[1], args.after == '' and '-' or '(' .. args.after, '+', 'LIMIT', 0, args.limit)
local rows = {}
for _, id in ipairs(ids) do
  local row = redis.call('HMGET', args.base .. 'user:' .. id, 'role', 'updated_at', 'time_zone')
  if row[1] then rows[#rows + 1] = {id, row[1], tonumber(row[2]), row[3] or ''} end
end
return cmsgpack.pack(rows)
