-- Adds to a counter. KEYS[1]: the counter. args: (amount). Returns the total.
--!include add
--!include bump
return cmsgpack.pack(bump(KEYS[1], args[1]))
