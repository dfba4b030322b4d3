-- Ends claims whose triggers were handled, and plans what follows.
-- KEYS: 1 due, 2 claimed, 3 receiver, 4 firings
-- args: now_ms, prefix, channel, session, last_ms, policy, items = {{id, token, next_ms or 0, finished}}
-- Returns {lost = tokens that held nothing, due, lapse}.
--!include settling

local now_ms = now(args.now_ms)
local former = head(KEYS[1])
local lost, earliest = {}, nil

local function following(t, wanted)
  if wanted > t.planned then
    return wanted
  end
  local missed = math.max(0, math.floor((now_ms - t.planned) / t.interval))
  return t.planned + (missed + 1) * t.interval
end

for _, item in ipairs(args.items) do
  local t = held(item[1], item[2], now_ms)
  if t then
    redis.call('ZREM', KEYS[2], t.id)
    note(KEYS[4], t, 'fired', now_ms)
    local planned = nil
    if t.interval > 0 and not item[4] then
      planned = following(t, item[3])
    end
    if planned and planned <= args.last_ms then
      redis.call('HSET', t.key, 'status', 'scheduled', 'planned', planned, 'failures', 0, 'error', '', 'token', '')
      redis.call('ZADD', KEYS[1], planned, t.id)
      earliest = math.min(earliest or planned, planned)
    else
      redis.call('HSET', t.key, 'failures', 0, 'error', '')
      finish(t, 'completed', now_ms)
    end
  else
    lost[#lost + 1] = item[2]
  end
end
wake_others(KEYS[3], former, earliest)
return cmsgpack.pack({ lost = lost, due = head(KEYS[1]), lapse = head(KEYS[2]) })
