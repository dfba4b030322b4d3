-- Marks a user's notifications as read, up to a position, the newest at most; those that were read stay read.
-- KEYS: 1 the stream, 2 the mark. args: now, keep (ms: how long the mark stays, since no notification that it covers
-- lives longer), through (position, "" for all). Returns the mark, "" when there is none.
local function at_least(position, other)
  local ms, number = string.match(position, '^(%d+)-(%d+)$')
  local other_ms, other_number = string.match(other, '^(%d+)-(%d+)$')
  ms, other_ms = tonumber(ms), tonumber(other_ms)
  return ms > other_ms or ms == other_ms and tonumber(number) >= tonumber(other_number)
end
local mark = redis.call('GET', KEYS[2])
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
if not newest then return cmsgpack.pack(mark or '') end
local through = args.through
if through == '' or at_least(through, newest[1]) then through = newest[1] end
if mark and at_least(mark, through) then return cmsgpack.pack(mark) end
redis.call('SET', KEYS[2], through, 'PX', args.keep)
return cmsgpack.pack(through)
