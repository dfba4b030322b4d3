-- Ends claims whose triggers were handled, and plans their next times.
-- KEYS: 1 due, 2 claimed, 3 receiver, 4 firings
-- args: now_ms, prefix, removed and events (beginnings of keys), channel, queue, session, last_ms, policy,
--   items = {{id, token, next_ms or -1, finished}}
-- Returns {lost = tokens of void claims, due, lapse}.
--!include settling
--!include firings

local now_ms = now(args.now_ms)
local former = head(KEYS[1])
local lost, earliest = {}, nil

-- Returns the next planned time, nil when there is none.
local function following(t, wanted)
  if t.interval == 0 then
    return nil
  elseif wanted > t.planned then
    return wanted
  elseif t.interval < 0 then
    return nil
  end
  local missed = math.max(0, math.floor((now_ms - t.planned) / t.interval))
  return t.planned + (missed + 1) * t.interval
end

for _, item in ipairs(args.items) do
  local t = claimed_trigger(item[1], item[2], now_ms)
  if t then
    redis.call('ZREM', KEYS[2], t.id)
    add_firing(KEYS[4], t, 'fired', now_ms)
    local planned = nil
    t.fired = t.fired + 1
    if t.event_id ~= '' then
      settle_firing(t, now_ms)
    elseif not item[4] and (t.most == 0 or t.fired < t.most) then
      planned = following(t, item[3])
    end
    if planned and planned <= (t.last or args.last_ms) then
      redis.call('HSET', t.key, 'failures', 0, 'error', '', 'fired', t.fired)
      t.planned = planned
      local place = queue_up(KEYS[1], t, place_of(t))
      if place then
        earliest = math.min(earliest or place, place)
      end
    elseif t.event_id == '' then
      redis.call('HSET', t.key, 'failures', 0, 'error', '', 'fired', t.fired)
      finish(t, 'completed', now_ms)
    end
  else
    lost[#lost + 1] = item[2]
  end
end
wake_others(KEYS[3], former, earliest)
return cmsgpack.pack({ lost = lost, due = head(KEYS[1]), lapse = head(KEYS[2]) })
