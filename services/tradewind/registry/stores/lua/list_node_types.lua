--!include catalogue
-- Reads declarations in the order of their names. KEYS: as records.lua. args as catalogue.lua, and after, limit,
-- max_checked (names at most).
-- Returns {declarations, the last name checked or '' at the end}.
local names = call('ZRANGEBYLEX', NAMES, args.after == '' and '-' or '(' .. args.after, '+', 'LIMIT', 0,
  args.max_checked)
local found, seen = declarations(names, args.limit)
local done = seen == #names and #names < args.max_checked
return answer({found, done and '' or names[seen]})
