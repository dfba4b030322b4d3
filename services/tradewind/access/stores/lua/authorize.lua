--!include sessions
-- Says which user a token belongs to, and notes its use. A session in use is put back into the user's index if it is
-- missing there: otherwise nobody could revoke it. KEYS: the session. args: as sessions.lua, and digest.
-- Returns {refusal or "", user_id, role}.
local refusal, row, role = recognized(args.digest)
if refusal ~= '' then return cmsgpack.pack({refusal, '', ''}) end
row[8] = math.max(row[8], time)
redis.call('HSET', KEYS[1], 'last_activity', text(row[8]))
redis.call('PEXPIRE', KEYS[1], text(expires_at(row) + args.remembered_ms - time))
index_session(row)
return cmsgpack.pack({'', row[2], role})
