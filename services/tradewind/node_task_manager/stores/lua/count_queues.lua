-- Counts what stands in some queues. KEYS[1] any key of the shard. args: base, queues {<type>:<user>}.
-- Returns, for each, how many node tasks stand in it and when the one that is next became ready (0 for none).
--!no-writes
--!include records
local counts = {}

-- Reads no more of a record than its state up to that time: there may be very many queues.
local function ready_at(id)
  local run = run_of(id)
  local state = run and call('HGET', base .. 'run:' .. run, place_of(id, run) .. 'state')
  if not state then return 0 end
  local _, _, _, _, _, at = cmsgpack.unpack_limit(state, 5)
  return tonumber(at or 0)
end

for _, name in ipairs(args.queues) do
  local key = base .. 'ready:' .. name
  -- One of another type counts as empty.
  local first = redis.pcall('ZRANGE', key, 0, 0)[1]
  counts[#counts + 1] = first and call('ZCARD', key) or 0
  counts[#counts + 1] = first and ready_at(first) or 0
end
return cmsgpack.pack(counts)
