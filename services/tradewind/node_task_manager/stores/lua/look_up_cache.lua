-- Looks up a result; if there is none and nobody works it out, the caller does from now on.
-- KEYS: result, flight, generation. args: now, fresh, token, flight_ms.
-- Returns {generation, result (JSON text or ""), busy_ms (how long another caller still has to work it out, 0 when this
-- one does)}.
--!include cached
local generation = cached.generation_of(KEYS[3])
local result = cached.valid(KEYS[1], generation)
if result then return cmsgpack.pack({generation = generation, result = result[3], busy_ms = 0}) end
local flight = cached.valid(KEYS[2], generation)
if flight and flight[3] ~= args.token then
  return cmsgpack.pack({generation = generation, result = '', busy_ms = flight[2] - time})
end
cached.store(KEYS[2], generation, args.flight_ms, args.token)
return cmsgpack.pack({generation = generation, result = '', busy_ms = 0})
