-- Of the run under way: its keys, and what its caller passed.
local KEYS, args
-- What each run begins with: functions that make its variables anew.
local beginnings = {}
local function fresh(begin) beginnings[#beginnings + 1] = begin end

-- now_ms as the caller passed it; 0 means this server's own time, in milliseconds.
local function now(now_ms)
  if now_ms ~= 0 then
    return now_ms
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
