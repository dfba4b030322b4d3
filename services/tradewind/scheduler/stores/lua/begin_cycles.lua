-- Begins cycles of flows, each judged by itself, in their order.
-- KEYS: for each group 1 owner, then the hash of the flow of each item.
-- args: now, request_ms (how long a request is remembered); groups, each {base, epoch, items} of one partition, an item
--   {flow_id, run_id, revision, scheduled, planned (ms, 0 for now), schedule_epoch, request ("" for none), payload (its
--   hash), check_in (ms), timeout (ms, 0 for none), replaces (cycle of the same run_id that gives way, -1 for none),
--   at_least (lowest number), nodes (ids), facts, memory ("" for none)}.
-- Returns for each group its answers, each {outcome, cycle, run, run_id, start, next planned time, revision}, none when
-- somebody else owns the partition by now.
--!include partition
local LOG_CYCLES, PLANNED, RUNS = 5, 100, 1024

local function answer(outcome, revision, cycle, run, run_id, start, next_at)
  return {outcome, cycle or -1, run or 0, run_id or '', start or 0, next_at or 0, revision or 0}
end

-- Removes a run and returns the request that it was begun for, if it still is remembered, and its payload's hash.
local function drop_run(flow_id, cycle, run_id)
  local key, name = run_key(flow_id, cycle, 0), cycle .. ':0'
  local known = call('HMGET', key, 'run_id', 'request')
  if known[1] ~= run_id then return '', '' end
  call('DEL', key, key .. ':nodes', logs_key(flow_id, cycle))
  call('ZREM', flow_key(flow_id) .. ':cycles', name)
  call('ZREM', flow_key(flow_id) .. ':open', name)
  call('ZREM', base .. 'open', flow_id .. ':' .. name)
  local planned = flow_key(flow_id) .. ':planned'
  for _, answered in ipairs(call('ZRANGE', planned, -1, -1)) do
    if string.match(answered, '^%d+:(.+)$') == name .. ':' .. run_id then call('ZREM', planned, answered) end
  end
  local first = known[2] and call('GET', base .. 'request:' .. known[2])
  if not first then return '', '' end
  return known[2], string.match(first, '^%S+')
end

-- What was answered to this planned time before, or nil.
local function planned_before(key, planned, next_at, revision)
  local known = call('ZRANGEBYSCORE', key, planned, planned, 'LIMIT', 0, 1)[1]
  if not known then return nil end
  local cycle, run, run_id = string.match(known, '^%d+:(%d+):(%d+):(.+)$')
  if not cycle then return answer('overlap', revision, nil, nil, nil, nil, next_at) end
  return answer('duplicate', revision, tonumber(cycle), tonumber(run), run_id, nil, next_at)
end

local function remember_planned(key, planned, what)
  call('ZADD', key, planned, planned .. ':' .. what)
  call('ZREMRANGEBYRANK', key, 0, -PLANNED - 1)
end

local function begin(key, flow_id, run_id, revision, scheduled, planned, schedule_epoch, request, payload, check_in,
                     timeout, replaces, at_least, nodes, facts, memory)
  local flow = call('HMGET', key, 'status', 'revision', 'last_cycle', 'overlap', 'interval_ms', 'schedule_epoch')
  if not flow[1] then return answer('not_found') end
  local current = tonumber(flow[2])
  if flow[1] == 'deleting' then return answer('deleting', current) end
  local next_at, interval = 0, tonumber(flow[5])
  if scheduled and interval > 0 then
    next_at = planned + math.max(1, math.floor((time - planned) / interval) + 1) * interval
  end
  if replaces >= 0 then
    request, payload = drop_run(flow_id, replaces, run_id)
  else
    if request ~= '' then
      local first = call('GET', base .. 'request:' .. request)
      if first then
        local hash, cycle, run, id = string.match(first, '^(%S+) (%d+) (%d+) (%S+)$')
        if hash ~= payload then return answer('reused', current) end
        return answer('duplicate', current, tonumber(cycle), tonumber(run), id)
      end
    end
    if scheduled then
      if schedule_epoch < tonumber(flow[6]) then return answer('stale_epoch', current) end
      if flow[1] ~= 'running' then return answer('not_running', current) end
      local first = planned_before(key .. ':planned', planned, next_at, current)
      if first then return first end
    end
    if revision ~= current then return answer('revision_changed', current) end
    if flow[4] == 'skip' then
      local open = call('ZREVRANGE', key .. ':open', 0, 0)[1]
      if open then
        -- The one firing of a flow that runs once is not given up: it comes again until it can begin.
        if next_at > 0 then
          remember_planned(key .. ':planned', planned, 'skipped')
          call('HSET', key, 'next_execution', next_at)
        end
        return answer('overlap', current, tonumber(string.match(open, '^%d+')), nil, nil, nil, next_at)
      end
    end
  end
  local cycle = math.max(tonumber(flow[3]) + 1, at_least)
  local name = cycle .. ':0'
  -- A number that the index knows was used before the store lost its last second, and is not used again.
  while call('ZADD', key .. ':cycles', 'NX', cycle * RUNS, name) == 0 do
    cycle = cycle + 1
    name = cycle .. ':0'
  end
  local run = key .. ':cycle:' .. name
  local fields = {'flow_id', flow_id, 'cycle', cycle, 'run_id', run_id, 'status', 'running', 'version', 1,
    'start_time', time, 'facts', facts}
  local size = #fields
  if planned > 0 then
    fields[size + 1], fields[size + 2] = 'planned_time', planned
    size = size + 2
  end
  if request ~= '' then
    fields[size + 1], fields[size + 2] = 'request', request
    size = size + 2
  end
  if timeout > 0 then fields[size + 1], fields[size + 2] = 'deadline', time + timeout end
  call('HSET', run, unpack(fields))
  if memory == '' then
    announce(flow_id, cycle, 0, 1, fields)
  else
    call('HSET', run, 'memory', memory)
    announce(flow_id, cycle, 0, 1, {})
  end
  for first = 1, #nodes, 1000 do
    call('SADD', run .. ':nodes', unpack(nodes, first, math.min(first + 999, #nodes)))
  end
  call('ZADD', key .. ':open', cycle * RUNS, name)
  call('ZADD', base .. 'open', time + check_in, flow_id .. ':' .. name)
  append_line(flow_id, cycle, 'INFO', 'scheduler', 'Starting cycle ' .. cycle)
  if cycle >= LOG_CYCLES then call('DEL', logs_key(flow_id, cycle - LOG_CYCLES)) end
  if scheduled then
    remember_planned(key .. ':planned', planned, name .. ':' .. run_id)
    call('HSET', key, 'last_cycle', cycle, 'next_execution', next_at)
  else
    call('HSET', key, 'last_cycle', cycle)
  end
  if request ~= '' then
    call('SET', base .. 'request:' .. request, payload .. ' ' .. cycle .. ' 0 ' .. run_id, 'PX', args.request_ms)
  end
  return answer('begun', current, cycle, 0, run_id, time, next_at)
end

return answers_of(args.groups, begin)
