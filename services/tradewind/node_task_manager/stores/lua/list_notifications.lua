-- Reads notifications of a user, newest first, and up to which all are read.
-- KEYS: 1 the stream, 2 the mark up to which all are read. args: now, keep (ms: older ones are not listed), before
-- (position, "" for the newest), limit.
-- Returns {entries {[position, fact]}, mark ("" for none), unread (how many are unread, whatever `before` is)}.
--!no-writes
local bound, mark = now(args.now) - args.keep, redis.call('GET', KEYS[2]) or ''
local oldest, entries = string.format('%.0f', bound), {}
local newest = args.before == '' and '+' or '(' .. args.before
-- Redis takes no range that ends before the first position of all, at which there is never an entry.
if string.find(args.before, '^0+%-0+$') then newest = '0-0' end
for i, entry in ipairs(redis.call('XREVRANGE', KEYS[1], newest, oldest, 'COUNT', args.limit)) do
  entries[i] = {entry[1], cmsgpack.unpack(entry[2][2])}
end
local marked = mark ~= '' and tonumber(string.match(mark, '^%d+')) >= bound
local unread = #redis.call('XRANGE', KEYS[1], marked and '(' .. mark or oldest, '+')
return cmsgpack.pack({entries = entries, mark = mark, unread = unread})
