--!include sessions
-- Says which user a token belongs to, and notes its use. A session in use is put back into the user's index if it is
-- missing there: otherwise nobody could revoke it. KEYS: the session. args: as sessions.lua, and digest.
-- Returns {refusal or "", user_id, role}.
local row = session(args.digest)
local role = row and role_of(row[2])
if not role then return cmsgpack.pack({'unknown', '', ''}) end
if expires_at(row) <= time then return cmsgpack.pack({'expired', '', ''}) end
row[8] = math.max(row[8], time)
redis.call('HSET', KEYS[1], 'last_activity', text(row[8]))
redis.call('PEXPIRE', KEYS[1], text(expires_at(row) + args.remembered_ms - time))
index_session(row)
return cmsgpack.pack({'', row[2], role})
