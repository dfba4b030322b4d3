--!include catalogue
-- Reads declarations in the order of their names. KEYS: as records.lua. args as catalogue.lua, and after, limit,
-- look_at (names at most).
-- Returns {declarations, the last name looked at or '' at the end}.
local names = redis.call('ZRANGEBYLEX', NAMES, args.after == '' and '-' or '(' .. args.after, '+', 'LIMIT', 0, args.look_at)
local found, seen = declarations(names, args.limit)
local done = seen == #names and #names < args.look_at
return cmsgpack.pack({found, done and '' or names[seen]})
