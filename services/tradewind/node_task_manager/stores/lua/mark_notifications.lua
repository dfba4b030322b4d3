-- Marks a user's notifications as read, up to a position; those that were read stay read.
-- KEYS: 1 the stream, 2 the mark. args: now, keep (ms: how long the mark stays, since no notification that it covers
-- lives longer), through (position, "" for all). Returns the mark, "" when there is nothing to mark.
local through = args.through
if through == '' then
  local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)[1]
  if not newest then return cmsgpack.pack('') end
  through = newest[1]
end
local function parts(position)
  local ms, number = string.match(position, '^(%d+)-(%d+)$')
  return tonumber(ms), tonumber(number)
end
local mark = redis.call('GET', KEYS[2])
if mark then
  local ms, number = parts(through)
  local marked_ms, marked_number = parts(mark)
  if marked_ms > ms or (marked_ms == ms and marked_number >= number) then return cmsgpack.pack(mark) end
end
redis.call('SET', KEYS[2], through, 'PX', args.keep)
return cmsgpack.pack(through)
