-- Adds to a counter. KEYS[1]: the counter. args: (amount). Returns its total, how often this run has added, and how
-- often all that this server remembers have.
--!include bump
local total = bump(KEYS[1], args[1])
return cmsgpack.pack({ total, calls, ever })
