-- Makes claimed triggers due again as if they had never been claimed; no failure is counted.
-- KEYS and args: as settling.lua; items = {{id, token}}
-- Returns the reply of settling.lua.
--!include settling

return cmsgpack.pack(settle_claims(function(t)
  redis.call('ZREM', KEYS[2], t.id)
  return queue_up(KEYS[1], t, place_of(t))
end))
