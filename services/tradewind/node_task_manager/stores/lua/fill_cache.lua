-- Stores a result, if the caller is working it out and the cache was not cleared since. If there are too many results,
-- those that expire first are removed.
-- KEYS: result, flight, generation, index. args: now, token, generation, result, ttl_ms, max_entries.
-- Returns {whether it was stored, how many were removed}.
--!include cached
local AT_ONCE = 100
if not cached.holds_flight(KEYS[2], KEYS[3]) then return cmsgpack.pack({false, 0}) end
cached.store(KEYS[1], args.generation, args.ttl_ms, args.result)
call('DEL', KEYS[2])
local ended = call('ZRANGEBYSCORE', KEYS[4], '-inf', time, 'LIMIT', 0, AT_ONCE)
if #ended > 0 then call('ZREM', KEYS[4], unpack(ended)) end
call('ZADD', KEYS[4], time + args.ttl_ms, KEYS[1])
call('PEXPIRE', KEYS[4], args.ttl_ms, 'NX')
call('PEXPIRE', KEYS[4], args.ttl_ms, 'GT')
local excess = math.min(AT_ONCE, call('ZCARD', KEYS[4]) - args.max_entries)
if excess > 0 then
  local evicted = call('ZPOPMIN', KEYS[4], excess)
  for i = 1, #evicted, 2 do call('UNLINK', evicted[i]) end
end
return cmsgpack.pack({true, math.max(0, excess)})
