-- Looks up a result; if there is none and nobody works it out, the caller does from now on.
-- KEYS: result, flight, generation. args: now, fresh, token, flight_ms.
-- Returns {generation, result (JSON text or ""), busy_ms (how long another caller still has to work it out, 0 when this
-- one does)}.
--!include cached
local generation = generation_of(KEYS[3])
local result = valid_entry(KEYS[1], generation)
if result then return cmsgpack.pack({generation = generation, result = result[3], busy_ms = 0}) end
local flight = valid_entry(KEYS[2], generation)
if flight and flight[3] ~= args.token then
  return cmsgpack.pack({generation = generation, result = '', busy_ms = flight[2] - time})
end
store(KEYS[2], generation, args.flight_ms, args.token)
return cmsgpack.pack({generation = generation, result = '', busy_ms = 0})
