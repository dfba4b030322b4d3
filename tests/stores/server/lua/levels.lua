-- Counts in two levels. KEYS[1]: the counter. args: (amount, far). Returns the total, or at once -1 when not far.
local amount, total = args[1], 0
--!level
local function count() total = total + redis.call('INCRBY', KEYS[1], amount) end
if not args[2] then return cmsgpack.pack(-1) end
--!level
count()
return cmsgpack.pack(total)
