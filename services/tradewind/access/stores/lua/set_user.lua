--!include sessions
-- Puts a user on record, or changes the user's role. KEYS: the user's hash, the index of users. args: as sessions.lua,
-- and user_id, role, time_zone ("" leaves it as it is). Returns {the time, the user's time zone or ""}.
set_role(args.user_id, args.role)
index_user(args.user_id)
if args.time_zone ~= '' then redis.call('HSET', KEYS[1], 'time_zone', args.time_zone) end
publish_change(args.user_id)
return cmsgpack.pack({time, plain(redis.call('HGET', KEYS[1], 'time_zone') or '')})
