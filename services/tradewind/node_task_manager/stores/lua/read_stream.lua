-- Reads a capped stream: after a position, the oldest first; or with `newest` before one, the newest first.
-- KEYS[1] the stream. args: now, keep (ms: nothing older is there; 0 for no such bound), at (position, "" for none),
-- newest, limit.
-- Returns {gap (what came after `at` is not all there, so all that is there follows), entries {[position, what stands there]}}.
local call, key, gap, entries = redis.call, KEYS[1], false, {}
local oldest = args.keep > 0 and string.format('%.0f', now(args.now) - args.keep) or '-'
local found
if args.newest then
  found = call('XREVRANGE', key, args.at == '' and '+' or '(' .. args.at, oldest, 'COUNT', args.limit)
else
  local from = '(' .. args.at
  if args.at == '' then
    from = oldest
  elseif args.at == '0-0' then
    local facts = call('EXISTS', key) == 1 and call('XINFO', 'STREAM', key) or {}
    local known = {}
    for i = 1, #facts, 2 do known[facts[i]] = facts[i + 1] end
    gap = known['length'] ~= known['entries-added']
  else
    gap = #call('XRANGE', key, args.at, args.at) == 0
  end
  found = call('XRANGE', key, gap and oldest or from, '+', 'COUNT', args.limit)
end
for i, entry in ipairs(found) do entries[i] = {entry[1], cmsgpack.unpack(entry[2][2])} end
return cmsgpack.pack({gap = gap, entries = entries})
