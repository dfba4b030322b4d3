-- A local variable is read in a fraction of the time that a global one takes.
local cmsgpack, string, math, tonumber, ipairs, pairs, next, unpack = cmsgpack, string, math, tonumber, ipairs, pairs,
  next, unpack
-- The keys of the current run, and the args its caller passed.
local KEYS, args
-- Functions that reset the variables of a run; all are called before each run.
local resets = {}
local function fresh(reset) resets[#resets + 1] = reset end

-- Returns text as it is if it is UTF-8, as replies must be, else with '?' in place of its bytes beyond ASCII.
local function plain(text)
  if not string.find(text, '[\128-\255]') then return text end
  local rest = string.gsub(text, '[\194-\223][\128-\191]', ' ')
  rest = string.gsub(rest, '[\224-\239][\128-\191][\128-\191]', ' ')
  rest = string.gsub(rest, '[\240-\244][\128-\191][\128-\191][\128-\191]', ' ')
  return string.find(rest, '[\128-\255]') and string.gsub(text, '[\128-\255]', '?') or text
end

-- Whether a command failed because its key is of another type, by what redis.pcall has returned; raises other errors.
local of_another_type
do
  local type = type
  function of_another_type(reply)
    if type(reply) ~= 'table' or not reply.err then return false end
    if not string.find(reply.err, '^WRONGTYPE') then error(reply) end
    return true
  end
end

-- Returns now_ms as the caller passed it, or this server's own time in milliseconds when it is 0.
local function now(now_ms)
  if now_ms ~= 0 then
    return now_ms
  end
  local time = redis.call('TIME')
  return tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
end
