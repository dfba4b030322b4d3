-- Prolongs the work on a result, or gives it up; only the caller that works on it may do so.
-- KEYS: flight, generation. args: now, token, generation, flight_ms (0 to give it up).
-- Returns whether the caller worked on it.
--!include cached
if not cached.holds_flight(KEYS[1], KEYS[2]) then return cmsgpack.pack(false) end
if args.flight_ms > 0 then
  cached.store(KEYS[1], args.generation, args.flight_ms, args.token)
else
  call('DEL', KEYS[1])
end
return cmsgpack.pack(true)
