-- Takes a run that has ended, or has no record, out of the open ones. One that is running stays: the store may have
-- lost its end since the caller read it. A key of another type is no record.
-- KEYS: 1 owner. args: base, epoch (0), now, flow_id, cycle, run.
--!include partition
local cycles, name = flow_key(args.flow_id) .. ':cycles', digits('%d:%d', args.cycle, args.run)
local status = redis.pcall('HGET', run_key(args.flow_id, args.cycle, args.run), 'status')
if type(status) == 'table' then status = nil end
if status ~= 'running' then
  close(args.flow_id .. ':' .. name)
  conclude()
  local filled = call('ZSCORE', flow_key(args.flow_id) .. ':filling', name)
  if filled then call('ZADD', base .. 'backfills', 'XX', 0, args.flow_id .. ':' .. filled) end
  call('ZREM', flow_key(args.flow_id) .. ':filling', name)
  call('ZADD', base .. 'queued', 'XX', 0, args.flow_id)
  if status then call('ZADD', cycles, 'XX', args.cycle * RUNS + args.run, name) else call('ZREM', cycles, name) end
end
return cmsgpack.pack(true)
