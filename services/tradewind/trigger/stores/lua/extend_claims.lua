-- Moves the deadlines of claims.
-- KEYS: 1 due, 2 claimed
-- args: now_ms, prefix, items = {{id, token, lease_ms}}
-- Returns {lost = tokens of void claims, due, lapse}.
--!include settling

local now_ms = now(args.now_ms)
local lost = {}
for _, item in ipairs(args.items) do
  local t = claimed_trigger(item[1], item[2], now_ms)
  if t then
    redis.call('ZADD', KEYS[2], now_ms + item[3], t.id)
  else
    lost[#lost + 1] = item[2]
  end
end
return cmsgpack.pack({ lost = lost, due = head(KEYS[1]), lapse = head(KEYS[2]) })
