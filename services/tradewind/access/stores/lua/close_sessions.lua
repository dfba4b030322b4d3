--!include sessions
-- Ends sessions of a user. KEYS: the user's sessions. args: as sessions.lua, and user_id, name (the beginning of the
-- digest of the one session to end, "" for all), keep (the same of a session that stays, "" for none). Returns how many
-- ended.
local count = 0
for _, row in ipairs((sessions_of(args.user_id))) do
  local begins = string.sub(row[1], 1, 20)
  if (args.name == '' or begins == args.name) and begins ~= args.keep then
    count = count + remove(args.user_id, row[1])
  end
end
if count > 0 then publish_change(args.user_id) end
return cmsgpack.pack(count)
