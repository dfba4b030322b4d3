--!include sessions
-- Reads users of a partition by id, skipping those without a readable record or with an unknown role. KEYS: the index
-- of users. args: as sessions.lua, and after, limit, roles. Returns {user_id, role, updated_at, time_zone or ""} of
-- each; fewer than the limit only at the end.
--!no-writes
local known, rows, after = {}, {}, args.after
for _, role in ipairs(args.roles) do known[role] = true end
while #rows < args.limit do
  local ids = redis.call('ZRANGEBYLEX', KEYS[1], after == '' and '-' or '(' .. after, '+', 'LIMIT', 0,
    args.limit - #rows)
  if #ids == 0 then break end
  for _, id in ipairs(ids) do
    local row = redis.pcall('HMGET', user_key(id), 'role', 'updated_at', 'time_zone')
    if row[1] and known[row[1]] then rows[#rows + 1] = {id, row[1], whole(row[2]) or 0, plain(row[3] or '')} end
  end
  after = ids[#ids]
end
return cmsgpack.pack(rows)
