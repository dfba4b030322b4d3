-- Removes the records of a flow that is being deleted, some runs at a time, the flow's own hash last. A tombstone with
-- its schedule epoch stays.
-- KEYS: 1 owner, 2 hash of the flow.
-- args: base, epoch (0), now, flow_id, cycles (how many runs to remove at most), tombstone_ms.
-- Returns whether nothing is left to remove. A flow that somebody has registered again meanwhile is left as it is.
--!include partition
local flow = KEYS[2]

local function forget(request)
  if request then call('DEL', base .. 'request:' .. request) end
end

-- Returns how many runs it removed.
local function remove_cycles()
  local names = call('ZRANGE', flow .. ':cycles', 0, args.cycles - 1)
  for _, name in ipairs(names) do
    local cycle, run = string.match(name, '^(%d+):(%d+)$')
    if cycle then
      local key = run_key(args.flow_id, cycle, run)
      forget(request_of(key))
      call('UNLINK', key, logs_key(args.flow_id, cycle))
      call('ZREM', base .. 'open', args.flow_id .. ':' .. name)
    end
  end
  if #names > 0 then call('ZREM', flow .. ':cycles', unpack(names)) end
  return #names
end

local known = call('HMGET', flow, 'status', 'schedule_epoch', 'request')
if not known[1] then
  call('ZREM', base .. 'flows', args.flow_id)
  call('ZREM', base .. 'outbox', args.flow_id)
  return cmsgpack.pack(true)
end
if known[1] ~= 'deleting' then return cmsgpack.pack(true) end
if remove_cycles() == args.cycles then return cmsgpack.pack(false) end
forget(known[3])
call('SET', base .. 'tombstone:' .. args.flow_id, known[2], 'PX', args.tombstone_ms)
for _, id in ipairs(call('ZRANGE', flow .. ':backfills', 0, -1)) do
  local record = flow .. ':backfill:' .. id
  forget(call('HGET', record, 'request'))
  call('UNLINK', record, record .. ':firings')
  call('ZREM', base .. 'backfills', args.flow_id .. ':' .. id)
end
call('UNLINK', flow .. ':backfills', flow .. ':filling')
call('UNLINK', flow .. ':cycles', flow .. ':firings', flow .. ':queued', flow .. ':revisions',
  flow .. ':history', flow .. ':memory')
call('ZREM', base .. 'flows', args.flow_id)
call('ZREM', base .. 'outbox', args.flow_id)
call('ZREM', base .. 'queued', args.flow_id)
call('DEL', flow)
publish_change(args.flow_id, -1, 0, 0, {})
conclude()
return cmsgpack.pack(true)
