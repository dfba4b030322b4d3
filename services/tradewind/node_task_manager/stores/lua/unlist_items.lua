-- Takes items of a batch that was deleted off the lists of node tasks, unless there is a batch of its name again.
-- KEYS[1] any key of the shard. args: base, now, limits, run, user_id, first, last (places of items, at most 500).
-- Returns how many entries were removed.
--!allow-oom
--!include shard
if call('EXISTS', base .. 'run:' .. args.run) == 1 then return cmsgpack.pack(0) end
local ids = {}
for place = args.first, args.last do ids[#ids + 1] = args.run .. ':' .. string.format('%.0f', place) end
return cmsgpack.pack(call('ZREM', base .. 'node_tasks_list', unpack(ids))
  + call('ZREM', base .. 'dead_letters:' .. args.user_id, unpack(ids)))
