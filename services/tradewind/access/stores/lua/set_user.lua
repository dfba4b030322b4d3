--!include sessions
-- Puts a user on record, or changes the role. KEYS: the user's hash, the index of users. args: as sessions.lua, and user_id,
-- role. Returns the time.
set_role(args.user_id, args.role)
tell(args.user_id)
return cmsgpack.pack(time)
