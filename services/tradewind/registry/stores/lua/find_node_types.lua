--!include catalogue
-- Reads the declarations of named node types. KEYS: as records.lua. args as catalogue.lua, and names.
-- Returns {declarations in the order of the names, how many names it checked}.
local found, seen = declarations(args.names, #args.names + 1)
return answer({found, seen})
