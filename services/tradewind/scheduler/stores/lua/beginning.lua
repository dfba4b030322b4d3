--!include due
--!include backfilling
-- Begins a cycle of a flow.
local LOG_CYCLES = 100
-- How long a flow is left alone whose planned times wait for an open cycle, ms. The end of a cycle makes it sooner.
local BLOCKED = 300000
local STOP = {'stop_by', 'stop_reason', 'stop_at', 'stop_timeout', 'stop_request', 'stop_forced'}

-- What this script has read of flows, as long as nothing but the number of their last cycle has changed.
local flows = {}
fresh(function() if next(flows) then flows = {} end end)

-- Reads what beginning a cycle needs of a flow, of its schedule only if `scheduled`; false when there is no such flow.
local function flow_of(flow_id, scheduled)
  local key = flow_key(flow_id)
  write_last_cycle(key)
  local v = scheduled
    and call('HMGET', key, 'status', 'revision', 'last_cycle', 'overlap', 'digest', 'logged', 'next_execution',
      'schedule_epoch')
    or call('HMGET', key, 'status', 'revision', 'last_cycle', 'overlap', 'digest', 'logged')
  return v[1] and {id = flow_id, key = key, status = v[1], revision = tonumber(v[2]), last_cycle = tonumber(v[3]),
    overlap = v[4], digest = v[5], logged = v[6], next_at = tonumber(v[7]), schedule_epoch = tonumber(v[8])}
end

local function add(fields, name, value)
  local size = #fields
  fields[size + 1], fields[size + 2] = name, value
end

-- Removes a run; returns the fields that ask it to stop, nil when the run is not on record. If the request that it was
-- begun for is still remembered, forgets it and also returns it, its payload's hash and for how long it would have been
-- remembered; else '', '' and 0.
local function remove_run(flow_id, cycle, run_id)
  local key, name = run_key(flow_id, cycle, 0), cycle .. ':0'
  local known = call('HMGET', key, 'run_id', unpack(STOP))
  if known[1] ~= run_id then return nil end
  local stop, begun_for = {}, request_of(key)
  for at, field in ipairs(STOP) do
    if known[at + 1] then add(stop, field, known[at + 1]) end
  end
  call('DEL', key, logs_key(flow_id, cycle))
  call('ZREM', flow_key(flow_id) .. ':cycles', name)
  call('ZREM', flow_key(flow_id) .. ':filling', name)
  close(flow_id .. ':' .. name)
  -- Remove the line that says that the run began for a planned time, too.
  local lines, fired = flow_key(flow_id) .. ':firings', ' fired ' .. cycle .. ' 0 ' .. run_id .. ' '
  for _, line in ipairs(call('ZREVRANGE', lines, 0, 99)) do
    if string.find(line, fired, 1, true) then call('ZREM', lines, line) end
  end
  local request = begun_for and base .. 'request:' .. begun_for
  local left = request and call('PTTL', request) or 0
  local first = request and call('GETDEL', request)
  if not first then return stop, '', '', 0 end
  return stop, begun_for, string.match(first, '^%S+'), math.max(left, 1)
end

-- Whether the overlap policy counts an open run: reruns, backfills and runs for nodes of other flows do not count.
local function counts_for_overlap(key, name)
  return string.sub(name, -2) == ':0' and not call('ZSCORE', key .. ':filling', name)
end

-- Returns the newest open run that the overlap policy counts, nil when there is none.
local function blocking_run(key)
  local newest = call('ZREVRANGEBYSCORE', key .. ':cycles', '+inf', STOPPING, 'LIMIT', 0, 1)[1]
  if not newest then return nil end
  if counts_for_overlap(key, newest) then return newest end
  for _, name in ipairs(call('ZREVRANGEBYSCORE', key .. ':cycles', '+inf', STOPPING, 'LIMIT', 1, -1)) do
    if counts_for_overlap(key, name) then return name end
  end
end

-- Returns the answer when no cycle begins now; else nil, the planned time of the cycle, and its inputs.
local function admit(flow, plan, backfill, parent, planned, same_revision, inputs, request, payload)
  if plan then
    local refused = due.refusal(flow, plan, planned, same_revision)
    if refused then return refused end
    -- A backfill may already have begun a cycle for the missed time that this is to catch up with.
    if planned > plan.at and firings.of(flow.key, planned) == 'fired' then planned = 0 end
  end
  if not same_revision then return refusal('revision_changed', flow.revision, request, payload) end
  if backfill then
    local outcome = backfills.advance(flow.key, flow.id, flow.status, backfill[1], planned, backfill[2])
    if outcome ~= 'begun' then return answer(outcome, flow.revision) end
  end
  local open = flow.overlap ~= 'allow' and not backfill and not parent and blocking_run(flow.key)
  -- A planned time that waits begins before one that is due later.
  local blocked = open or plan and not plan.queued and flow.overlap ~= 'allow'
    and call('EXISTS', flow.key .. ':queued') == 1
  -- A time that is due soon is judged by the cycles that run when it is due.
  if blocked and plan and plan.ahead then return answer('early', flow.revision) end
  -- The only firing of a flow that runs once is not skipped: it comes again until its cycle can begin, or it is too
  -- late.
  if open and (not plan or plan.queued or plan.once and flow.overlap == 'skip') then
    if plan and plan.queued then call('ZADD', base .. 'queued', 'XX', time + BLOCKED, flow.id) end
    return refusal('overlap', flow.revision, request, payload, {cycle = tonumber(string.match(open, '^%d+'))})
  end
  if plan then return due.settle(flow, plan, planned, blocked, open, inputs) end
  return nil, planned, inputs
end

-- Enters a new open cycle in the index of its flow; returns its number, that as text, and the name of its first run.
local function next_cycle(flow, at_least)
  local cycle = math.max(flow.last_cycle + 1, at_least or 0)
  local number = digits('%d', cycle)
  local name = number .. ':0'
  -- A number that is in the index was used before the store lost its last second, and must not be used again.
  while call('ZADD', flow.key .. ':cycles', 'NX', OPEN + cycle * RUNS, name) == 0 do
    cycle = cycle + 1
    number = digits('%d', cycle)
    name = number .. ':0'
  end
  return cycle, number, name
end

local function begin(flow_id, run_id, revision, digest, planned, check_in, timeout, facts, inputs, request, payload,
  request_ms, rare)
  local plan, parent, backfill, replaces, at_least, stop
  if rare then plan, parent, backfill, replaces, at_least = unpack(rare) end
  local flow = not rare and flows[flow_id] or flow_of(flow_id, plan)
  flows[flow_id] = not rare and flow or nil
  if not flow then return answer('not_found') end
  if flow.status == 'deleting' then return answer('deleting', flow.revision) end
  plan = plan and due.plan_of(plan, run_id)
  if replaces and replaces >= 0 then
    stop, request, payload, request_ms = remove_run(flow_id, replaces, run_id)
    -- It has been replaced before, by a call whose answer was lost.
    if not stop then return answer('not_found', flow.revision) end
  else
    local same_revision, refused = revision == flow.revision and string.sub(flow.digest, 1, #digest) == digest, nil
    refused, planned, inputs = admit(flow, plan, backfill, parent, planned, same_revision, inputs, request, payload)
    if refused then return refused end
    run_id = plan and plan.run_id or run_id
  end
  local cycle, number, name = next_cycle(flow, at_least)
  if request ~= '' then
    local first = call('SET', base .. 'request:' .. request, payload .. ' ' .. number .. ' 0 ' .. run_id, 'NX', 'GET',
      'PX', request_ms)
    if first then
      call('ZREM', flow.key .. ':cycles', name)
      return remembered(first, payload, flow.revision)
    end
  end
  -- A cycle that is put on record ahead of its time starts at its time.
  local start = plan and plan.ahead and math.max(time, planned) or time
  -- All fields are named up front, even as nil: growing the table later costs more.
  local fields = {'run_id', run_id, 'status', 'running', 'start_time', start, 'facts', facts, nil, nil, nil, nil}
  if planned > 0 then add(fields, 'planned_time', planned) end
  if timeout > 0 then add(fields, 'deadline', start + timeout) end
  if inputs ~= '' then add(fields, 'memory', inputs) end
  if stop and request ~= '' then add(fields, 'request', request) end
  if parent then
    add(fields, 'parent', parent)
    call('ZADD', flow.key .. ':filling', 0, name)
  end
  if backfill then
    add(fields, 'backfill', backfill[1])
    backfills.begun(flow.key, flow_id, backfill[1], planned, name, run_id)
  end
  if stop and stop[1] then
    for at = 1, #stop, 2 do add(fields, stop[at], stop[at + 1]) end
    check_in = 0
  end
  local run = flow.key .. ':cycle:' .. name
  call('HSET', run, 'flow_id', flow_id, 'cycle', number, unpack(fields))
  publish_change(flow_id, cycle, 0, 1, inputs == '' and fields or {})
  schedule_check(time + check_in, flow_id .. ':' .. name)
  if flow.logged and tonumber(flow.logged) >= cycle - LOG_CYCLES then
    call('DEL', logs_key(flow_id, digits('%d', cycle - LOG_CYCLES)))
  end
  if plan then due.begun(flow.key, plan, planned, name, run_id) end
  flow.last_cycle = cycle
  if plan and plan.followed then
    call('HSET', flow.key, 'last_cycle', number, 'next_execution', plan.next_at)
  else
    last_cycles[flow.key] = number
  end
  if not rare then return cycle end
  if stop then
    return {'begun', flow.revision, cycle, start, planned, plan and plan.next_at or 0, '', 0, '', false, stop}
  end
  if not plan then return {'begun', flow.revision, cycle, start, planned, 0} end
  if not plan.queued then return {'begun', flow.revision, cycle, start, planned, plan.next_at} end
  return {'begun', flow.revision, cycle, start, planned, plan.next_at, plan.inputs, 0, run_id}
end
