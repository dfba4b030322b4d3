--!include records
-- Removes lapsed workers and node types, oldest first. KEYS: as records.lua. args: max_checked (most of each kind).
-- Returns how many it removed.
local workers = call('ZRANGEBYSCORE', ALIVE, '-inf', recorded_after, 'LIMIT', 0, args.max_checked)
for _, id in ipairs(workers) do
  redis.call('DEL', worker_key(id))
  unlist(id)
end
local names = call('ZRANGEBYSCORE', LAPSES, '-inf', time, 'LIMIT', 0, args.max_checked)
for _, name in ipairs(names) do
  redis.call('DEL', node_type_key(name))
  for _, index in ipairs({NAMES, LAPSES}) do call('ZREM', index, name) end
end
return answer(#workers + #names)
