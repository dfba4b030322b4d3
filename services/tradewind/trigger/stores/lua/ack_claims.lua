-- Ends claims whose triggers were handled, and plans their next times.
-- KEYS and args: as settling.lua; items = {{id, token, next_ms or -1, finished}}
-- Returns the reply of settling.lua.
--!include settling
--!include firings

-- Returns the next planned time, nil when there is none; computed as in domain/schedule.py.
local function following(t, wanted, now_ms)
  if t.interval == 0 then
    return nil
  elseif wanted > t.planned then
    return wanted
  elseif t.interval < 0 then
    return nil
  end
  local missed = math.max(0, math.floor((now_ms - t.jitter - t.planned) / t.interval))
  return t.planned + (missed + 1) * t.interval
end

return cmsgpack.pack(settle_claims(function(t, item, now_ms)
  redis.call('ZREM', KEYS[2], t.id)
  add_firing(KEYS[4], t, 'fired', now_ms)
  if t.event_id ~= '' then
    settle_firing(t, now_ms)
    return nil
  end
  t.fired = t.fired + 1
  redis.call('HSET', t.key, 'failures', 0, 'error', '', 'fired', t.fired)
  local ended = item[4] or (t.most > 0 and t.fired >= t.most)
  local planned = not ended and following(t, item[3], now_ms)
  if planned and planned <= t.last then
    t.planned = planned
    return queue_up(KEYS[1], t, place_of(t))
  end
  finish(t, 'completed', now_ms)
end))
