-- Clears a cache: a new generation makes all results void at once, then they are removed in pieces.
-- KEYS: generation, index. args: fresh (the new generation, nil to go on), most. Returns {removed, whether there are
-- more}.
local call = redis.call
if args.fresh then call('SET', KEYS[1], args.fresh, 'PX', 400 * 24 * 3600 * 1000) end
local removed = call('ZPOPMIN', KEYS[2], args.most)
for i = 1, #removed, 2 do call('UNLINK', removed[i]) end
return cmsgpack.pack({#removed / 2, call('EXISTS', KEYS[2]) == 1})
