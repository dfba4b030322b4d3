-- Reads a capped stream: after a position, oldest first; or with `newest` from its end, newest first.
-- KEYS[1] the stream. args: now, keep (ms: older entries are not read; 0 for no bound), at (position; not with
-- `newest`), newest, limit.
-- Returns {gap (whether entries after `at` are missing; then reading begins with the oldest), entries {[position,
-- content]}}.
--!no-writes
local call, key, gap, entries = redis.call, KEYS[1], false, {}
local bound = args.keep > 0 and now(args.now) - args.keep or 0
local oldest, found = string.format('%.0f', bound), nil
if args.newest then
  found = call('XREVRANGE', key, '+', oldest, 'COUNT', args.limit)
else
  if args.at == '0-0' then
    local facts = call('EXISTS', key) == 1 and call('XINFO', 'STREAM', key) or {}
    local known = {}
    for i = 1, #facts, 2 do known[facts[i]] = facts[i + 1] end
    gap = known['length'] ~= known['entries-added']
  else
    gap = #call('XRANGE', key, args.at, args.at) == 0
  end
  local begun = gap or tonumber(string.match(args.at, '^%d+')) < bound
  found = call('XRANGE', key, begun and oldest or '(' .. args.at, '+', 'COUNT', args.limit)
end
for i, entry in ipairs(found) do entries[i] = {entry[1], cmsgpack.unpack(entry[2][2])} end
return cmsgpack.pack({gap = gap, entries = entries})
