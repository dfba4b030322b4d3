-- A local variable is read in a fraction of the time that a global one takes.
local cmsgpack, string, math, tonumber, ipairs, pairs, next, unpack = cmsgpack, string, math, tonumber, ipairs, pairs,
  next, unpack
-- The keys of the current run, and the args its caller passed.
local KEYS, args
-- Functions that reset the variables of a run; all are called before each run.
local resets = {}
local function fresh(reset) resets[#resets + 1] = reset end

-- Returns now_ms as the caller passed it, or this server's own time in milliseconds when it is 0.
local function now(now_ms)
  if now_ms ~= 0 then
    return now_ms
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
