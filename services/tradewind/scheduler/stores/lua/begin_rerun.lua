-- Begins a further run of a cycle.
-- KEYS: 1 owner, 2 hash of the flow, 3 hash of the previous run.
-- args: base, epoch (0), now, flow_id, cycle, source (number of the previous run), source_id (its run_id), run_id,
--   planned (ms), timeout (ms, 0 for none), check_in (ms), facts, rerun, memory ("" for none), request ("" for none),
--   payload (its hash), request_ms.
-- Returns an answer as begin_cycles does; `not_latest` and `not_ended` name the latest run of the cycle.
--!include open_runs
--!include answers
local flow, source = KEYS[2], KEYS[3]

local function refuse()
  local status = call('HGET', flow, 'status')
  if not status then return answer('not_found') end
  if status == 'deleting' then return answer('deleting') end
  local first = args.request ~= '' and call('GET', base .. 'request:' .. args.request)
  if first then return remembered(first, args.payload) end
  local rank = args.cycle * RUNS
  -- Only the latest run of a cycle may be open.
  local runs = open_runs(flow .. ':cycles', args.cycle, args.cycle)
  local newest = runs[1] or call('ZREVRANGEBYSCORE', flow .. ':cycles', rank + RUNS - 1, rank, 'LIMIT', 0, 1)[1]
  local latest = newest and tonumber(string.match(newest, ':(%d+)$'))
  local known = call('HMGET', source, 'run_id', 'status')
  local named = {cycle = args.cycle, run = latest}
  if latest ~= args.source or known[1] ~= args.source_id then return answer('not_latest', 0, named) end
  if known[2] == 'running' then return answer('not_ended', 0, named) end
end

local function begin()
  local run = args.source + 1
  local name, key = args.cycle .. ':' .. run, run_key(args.flow_id, args.cycle, run)
  local fields = {'flow_id', args.flow_id, 'cycle', args.cycle, 'run_id', args.run_id, 'status', 'running',
    'start_time', time, 'facts', args.facts, 'rerun', args.rerun, 'planned_time', args.planned}
  local function add(field, value)
    fields[#fields + 1] = field
    fields[#fields + 1] = value
  end
  if args.memory ~= '' then add('memory', args.memory) end
  if args.timeout > 0 then add('deadline', time + args.timeout) end
  local variables, result = unpack(call('HMGET', source, 'variables', 'result'))
  if variables then add('variables', variables) end
  if result then add('result', result) end
  call('HSET', key, unpack(fields))
  -- Earlier runs of a cycle stay as long as its latest run.
  for before = 0, args.source do call('PERSIST', run_key(args.flow_id, args.cycle, before)) end
  call('PERSIST', logs_key(args.flow_id, args.cycle))
  call('ZADD', flow .. ':cycles', OPEN + args.cycle * RUNS + run, name)
  schedule_check(time + args.check_in, args.flow_id .. ':' .. name)
  if args.request ~= '' then
    call('SET', base .. 'request:' .. args.request, args.payload .. ' ' .. name:gsub(':', ' ') .. ' ' .. args.run_id,
      'PX', args.request_ms)
  end
  publish_change(args.flow_id, args.cycle, run, 1, {})
  conclude()
  return {'begun', 0, args.cycle, time, args.planned, 0, '', run, args.run_id}
end

return cmsgpack.pack(refuse() or begin())
