-- Puts a backfill of a flow on record; the owner of its partition carries it out.
-- KEYS: 1 owner, 2 hash of the flow.
-- args: base, epoch (0), now, flow_id, from, to, first, last (planned times), times (how many), max_running, schedule,
--   anchor, by, keep_for (ms, from its end), request ("" for none), payload, request_ms, max_active and max_kept (of
--   a flow).
-- Returns {outcome (created, repeated, reused, not_found, deleting, full), backfill_id}.
--!include backfilling
local flow = KEYS[2]

-- Removes ended backfills beyond the newest `max_kept`, and their entries if the records have expired.
local function trim_backfills()
  for _, id in ipairs(call('ZRANGE', flow .. ':backfills', 0, -1 - args.max_kept)) do
    local record = backfills.key(flow, id)
    if call('HGET', record, 'status') ~= 'running' then
      call('UNLINK', record, record .. ':firings')
      call('ZREM', flow .. ':backfills', id)
    end
  end
end

local function active()
  local count = 0
  for _, id in ipairs(call('ZRANGE', flow .. ':backfills', 0, -1)) do
    if call('HGET', backfills.key(flow, id), 'status') == 'running' then count = count + 1 end
  end
  return count
end

local function create()
  local status = call('HGET', flow, 'status')
  if not status then return {'not_found', 0} end
  if status == 'deleting' then return {'deleting', 0} end
  local first = args.request ~= '' and call('GET', base .. 'request:' .. args.request)
  if first then
    local payload, id = string.match(first, '^(%S+) (%d+)$')
    if payload ~= args.payload then return {'reused', 0} end
    return {'repeated', tonumber(id)}
  end
  if active() >= args.max_active then return {'full', 0} end
  local id = call('HINCRBY', flow, 'backfills', 1)
  call('HSET', backfills.key(flow, id), 'id', id, 'flow_id', args.flow_id, 'status', 'running', 'from', args.from,
    'to', args.to, 'first', args.first, 'last', args.last, 'position', args.first, 'times', args.times, 'max_running',
    args.max_running, 'schedule', args.schedule, 'anchor', args.anchor, 'by', args.by, 'created_at', time, 'keep_for',
    args.keep_for, 'begun', 0, 'skipped', 0, 'completed', 0, 'failed', 0, 'request', args.request)
  call('ZADD', flow .. ':backfills', id, id)
  call('ZADD', base .. 'backfills', 0, args.flow_id .. ':' .. id)
  trim_backfills()
  if args.request ~= '' then
    call('SET', base .. 'request:' .. args.request, args.payload .. ' ' .. id, 'PX', args.request_ms)
  end
  return {'created', id}
end

return cmsgpack.pack(create())
