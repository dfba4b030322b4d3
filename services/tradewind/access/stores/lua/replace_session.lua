--!include sessions
-- Moves a session from its old digest to a new one. KEYS: both sessions. args: as sessions.lua, and old, new.
-- Returns {refusal or "", row}.
local row = session(args.old)
if not row then return cmsgpack.pack({'unknown', {'', '', 'login', 0, 0, '', 0, 0}}) end
if expires_at(row) <= time then return cmsgpack.pack({'expired', row}) end
remove(row[2], args.old)
row[1], row[7], row[8] = args.new, time, time
save(row)
publish_change(row[2])
return cmsgpack.pack({'', row})
