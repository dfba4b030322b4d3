-- Moves the deadlines of claims.
-- KEYS and args: as settling.lua; items = {{id, token, lease_ms}}
-- Returns the reply of settling.lua.
--!include settling

return cmsgpack.pack(settle_claims(function(t, item, now_ms)
  redis.call('ZADD', KEYS[2], now_ms + item[3], t.id)
end))
