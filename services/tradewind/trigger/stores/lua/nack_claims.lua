-- Ends claims whose triggers could not be handled: they are due again later, or dead.
-- KEYS and args: as settling.lua; items = {{id, token, delay_ms or -1 for backoff, error, postponed}}
-- Returns the reply of settling.lua, with dead = {{id, failures, error}}.
--!include settling

local dead = {}
local settled = settle_claims(function(t, item, now_ms)
  local delay_ms = item[3] < 0 and backoff(t.failures + 1) or item[3]
  local place, died = fail(KEYS[1], KEYS[2], KEYS[5], KEYS[4], t, item[4], delay_ms, now_ms, item[5])
  if died then
    dead[#dead + 1] = { t.id, t.failures, item[4] }
  end
  return place
end)
settled.dead = dead
return cmsgpack.pack(settled)
