--!include sessions
-- Reads the sessions of a user that have not ended. KEYS: the user's sessions. args: as sessions.lua, and user_id.
-- Returns their rows.
--!no-writes
return cmsgpack.pack((sessions_of(args.user_id)))
