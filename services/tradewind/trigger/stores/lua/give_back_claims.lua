-- Makes claimed triggers due again as if they had never been claimed; no failure is counted.
-- KEYS: 1 due, 2 claimed, 3 receiver
-- args: now_ms, prefix, channel, queue, session, items = {{id, token}}
-- Returns {lost = tokens of void claims, due, lapse}.
--!include settling

local now_ms = now(args.now_ms)
local former = head(KEYS[1])
local lost, earliest = {}, nil
for _, item in ipairs(args.items) do
  local t = claimed_trigger(item[1], item[2], now_ms)
  if t then
    redis.call('ZREM', KEYS[2], t.id)
    local place = queue_up(KEYS[1], t, place_of(t))
    if place then
      earliest = math.min(earliest or place, place)
    end
  else
    lost[#lost + 1] = item[2]
  end
end
wake_others(KEYS[3], former, earliest)
return cmsgpack.pack({ lost = lost, due = head(KEYS[1]), lapse = head(KEYS[2]) })
