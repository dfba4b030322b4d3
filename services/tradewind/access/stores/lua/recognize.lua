--!include sessions
-- Does as authorize.lua, but changes nothing. args: as sessions.lua, and digest.
-- Returns {refusal or "", user_id, role}.
--!no-writes
local refusal, row, role = recognized(args.digest)
return cmsgpack.pack({refusal, row and row[2] or '', role or ''})
