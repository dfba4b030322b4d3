--!include sessions
-- Puts a session on record. KEYS: the user's hash. args: as sessions.lua, and row (its last two fields are ignored),
-- role ("" requires the user to be on record already), max_sessions (open ones per user). Returns {refusal or "", row}.
local row = args.row
local role = role_of(row[2])
if not role and args.role == '' then return cmsgpack.pack({'unknown_user', row}) end
if role and args.role ~= '' and role ~= args.role then return cmsgpack.pack({'other_role', row}) end
local open, ended, gone = sessions_of(row[2])
for _, digest in ipairs(gone) do redis.call('ZREM', sessions_key(row[2]), digest) end
if #open >= args.max_sessions then return cmsgpack.pack({'too_many', row}) end
for at = 1, #ended - args.max_sessions do remove(row[2], ended[at]) end
if not role then set_role(row[2], args.role) end
index_user(row[2])
row[7], row[8] = time, time
save(row)
return cmsgpack.pack({'', row})
