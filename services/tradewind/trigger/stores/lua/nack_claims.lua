-- Ends claims whose triggers could not be handled: they are due again later, or dead.
-- KEYS: 1 due, 2 claimed, 3 receiver, 4 firings, 5 dead
-- args: now_ms, prefix, channel, queue, all, session, policy,
--   items = {{id, token, delay_ms or -1 for backoff, error, postponed}}
-- Returns {lost = tokens of void claims, due, lapse, dead = {{id, failures, error}}}.
--!include settling

local now_ms = now(args.now_ms)
local former = head(KEYS[1])
local lost, dead, earliest = {}, {}, nil

for _, item in ipairs(args.items) do
  local t = claimed_trigger(item[1], item[2], now_ms)
  if t then
    local delay = item[3]
    if delay < 0 then
      delay = backoff(t.failures + 1)
    end
    local place, died = fail(KEYS[1], KEYS[2], KEYS[5], KEYS[4], t, item[4], delay, now_ms, item[5])
    if place then
      earliest = math.min(earliest or place, place)
    elseif died then
      dead[#dead + 1] = { t.id, t.failures, item[4] }
    end
  else
    lost[#lost + 1] = item[2]
  end
end
wake_others(KEYS[3], former, earliest)
return cmsgpack.pack({ lost = lost, due = head(KEYS[1]), lapse = head(KEYS[2]), dead = dead })
