-- Adds to a counter, and keeps its total in another key. KEYS[1]: the counter. args: (amount). Returns the total.
--!include add
local total = add(KEYS[1], args[1])
redis.call('SET', KEYS[1] .. ':copy', total)
return cmsgpack.pack(total)
