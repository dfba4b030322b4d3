--!include stopping
--!include firings
--!include backfilling
--!include events
-- How a cycle of a flow begins.
local LOG_CYCLES = 5

local function answer(outcome, revision, more)
  more = more or {}
  return {outcome, revision or 0, more.cycle or -1, 0, 0, more.next_at or 0, '', more.run or 0, more.run_id or '',
    more.stopping or false}
end

-- What was answered to a request before, nil when nothing was.
local function remembered(first, payload, revision)
  if not first then return nil end
  local hash, cycle, run, id = string.match(first, '^(%S+) (%d+) (%d+) (%S+)$')
  if hash ~= payload then return answer('reused', revision) end
  return answer('duplicate', revision, {cycle = tonumber(cycle), run = tonumber(run), run_id = id})
end

-- The answer to a wish that begins nothing now; with a request it may have begun something before.
local function refusal(outcome, revision, request, payload, more)
  return request ~= '' and remembered(call('GET', base .. 'request:' .. request), payload, revision)
    or answer(outcome, revision, more)
end

-- Removes a run; returns the request that it was begun for, which is forgotten, if it still was remembered, and its
-- payload's hash.
local function drop_run(flow_id, cycle, run_id)
  local key, name = run_key(flow_id, cycle, 0), cycle .. ':0'
  local known = call('HMGET', key, 'run_id', 'request')
  if known[1] ~= run_id then return '', '' end
  call('DEL', key, key .. ':nodes', logs_key(flow_id, cycle))
  call('ZREM', flow_key(flow_id) .. ':cycles', name)
  call('ZREM', flow_key(flow_id) .. ':filling', name)
  close(flow_id .. ':' .. name)
  -- So does the line that says that it was begun for a planned time.
  local lines, fired = flow_key(flow_id) .. ':firings', ' fired ' .. cycle .. ' 0 ' .. run_id .. ' '
  for _, line in ipairs(call('ZREVRANGE', lines, 0, 99)) do
    if string.find(line, fired, 1, true) then call('ZREM', lines, line) end
  end
  local first = known[2] and call('GETDEL', base .. 'request:' .. known[2])
  if not first then return '', '' end
  return known[2], string.match(first, '^%S+')
end

-- What was answered to a due time before, or nil. One that is planned still was not answered by this schedule, but begun by a
-- backfill or planned by another one: it goes on behind that.
local function answered_before(key, due, next_at, following, revision)
  local outcome, cycle, run, run_id = firings.of(key, due)
  if not outcome then return nil end
  if next_at == due then
    next_at = following
    call('HSET', key, 'next_execution', next_at)
    end_flow_that_is_over(key, 'running', next_at, 'completed')
  end
  if outcome ~= 'fired' then return answer('settled', revision, {next_at = next_at}) end
  return answer('duplicate', revision, {cycle = cycle, run = run, run_id = run_id, next_at = next_at})
end

-- Whether an open run is neither a rerun nor of a backfill, nor runs for a node of another flow.
local function minds_the_schedule(key, name)
  return string.sub(name, -2) == ':0' and not call('ZSCORE', key .. ':filling', name)
end

-- The newest cycle that has not ended, and minds the schedule.
local function in_the_way(key)
  local newest = call('ZREVRANGEBYSCORE', key .. ':cycles', '+inf', STOPPING, 'LIMIT', 0, 1)[1]
  if not newest then return nil end
  if minds_the_schedule(key, newest) then return newest end
  for _, name in ipairs(call('ZREVRANGEBYSCORE', key .. ':cycles', '+inf', STOPPING, 'LIMIT', 1, -1)) do
    if minds_the_schedule(key, name) then return name end
  end
end

-- What becomes of a planned time while a cycle is open, or none is (nil) and the one that waits longest is about to begin: it
-- waits, or somebody gives way. Returns whether runs were marked as stopping, and by how many more planned times wait.
local function give_way(key, flow_id, overlap, planned, open, label, inputs)
  local running = open and 'cycle ' .. string.match(open, '^%d+') .. ' was running' or 'an earlier one was about to begin'
  local most = (overlap == 'queue_one' and 1 or QUEUE) + (open and 0 or 1)
  local waiting = call('ZCARD', key .. ':queued')
  if overlap == 'skip' then
    firings.note(key, planned, 'skipped', running, nil, nil, nil, label)
  elseif overlap == 'cancel_running' then
    firings.drop_queued(key, flow_id, waiting, 'a later planned time took its place')
    firings.queue(key, flow_id, planned, open and running .. ' and was asked to stop' or running, label, inputs)
    return #mark_stopping(flow_id, 'scheduler', 'the next cycle is due and overlap is cancel_running', 'scheduler',
      true) > 0, 1 - waiting
  elseif waiting >= most then
    firings.note(key, planned, 'dropped', running .. ' and ' .. waiting .. ' waited', nil, nil, nil, label)
  else
    firings.queue(key, flow_id, planned, running, label, inputs)
    return false, 1
  end
  return false, 0
end

local function begin(flow_id, run_id, revision, digest, planned, check_in, timeout, nodes, facts, memory, request, payload,
                     rare)
  local key = flow_key(flow_id)
  local plan, parent, backfill, replaces, at_least
  if rare then plan, parent, backfill, replaces, at_least = unpack(rare) end
  local flow = plan
    and call('HMGET', key, 'status', 'revision', 'last_cycle', 'overlap', 'digest', 'logged', 'next_execution', 'schedule_epoch')
    or call('HMGET', key, 'status', 'revision', 'last_cycle', 'overlap', 'digest', 'logged')
  if not flow[1] then return answer('not_found') end
  local queued, due, next_at, missed, most, once, schedule_epoch, ahead, event
  if plan then queued, due, next_at, missed, most, once, schedule_epoch, ahead, event = unpack(plan) end
  local label, inputs, planned_next
  local current = tonumber(flow[2])
  if flow[1] == 'deleting' then return answer('deleting', current) end
  if replaces and replaces >= 0 then
    request, payload = drop_run(flow_id, replaces, run_id)
  else
    local same = revision == current and string.sub(flow[5], 1, #digest) == digest
    if event then
      label = due .. event[1]
      if meet_event(key, flow[1], due, schedule_epoch, same, event) then
        return answer('settled', current, {next_at = tonumber(flow[7])})
      end
    end
    if plan then
      if not queued and not event and schedule_epoch < tonumber(flow[8]) then return answer('stale_epoch', current) end
      if flow[1] ~= 'running' then return answer('not_running', current) end
      local first = not queued and answered_before(key, due, tonumber(flow[7]), planned > due and planned or next_at, current)
      if first then return first end
      -- What is caught up with may have had its cycle by a backfill.
      if planned > due and firings.of(key, planned) == 'fired' then planned = 0 end
    end
    if not same then return refusal('revision_changed', current, request, payload) end
    if backfill then
      local outcome = backfills.move(key, flow_id, flow[1], backfill[1], planned, backfill[2])
      if outcome ~= 'begun' then return answer(outcome, current) end
    end
    local open = flow[4] ~= 'allow' and not backfill and not parent and in_the_way(key)
    -- What waits begins before what is due later.
    local held_up = open or plan and not queued and flow[4] ~= 'allow' and call('EXISTS', key .. ':queued') == 1
    -- What is due soon is judged by what runs when it is due.
    if held_up and ahead then return answer('early', current) end
    -- The one firing of a flow that runs once is not given up: it comes again until it can begin.
    if open and (queued or not plan or once and flow[4] == 'skip') then
      return refusal('overlap', current, request, payload, {cycle = tonumber(string.match(open, '^%d+'))})
    end
    if queued then
      planned, label, inputs = firings.next_queued(key, flow_id)
      if not planned then return answer('settled', current) end
      if inputs ~= '' then memory = inputs end
    elseif plan then
      if missed then
        firings.note(key, missed[1], 'missed', 'found due too late', nil, nil, missed[3], missed[2])
      end
      local stopping, cycles = false, 1
      if planned > 0 and held_up then stopping, cycles = give_way(key, flow_id, flow[4], planned, open, label, memory) end
      if planned > 0 and most > 0 and call('HINCRBY', key, 'fired', cycles) >= most then next_at = 0 end
      -- Events go on coming until the trigger service hears that no more are wanted.
      if event and next_at == 0 then call('ZADD', base .. 'outbox', time, flow_id) end
      if planned == 0 or held_up then
        call('HSET', key, 'next_execution', next_at)
        end_flow_that_is_over(key, 'running', next_at, 'completed')
        return answer('settled', current, {next_at = next_at, stopping = stopping})
      end
      planned_next = next_at
    end
  end
  local cycle = math.max(tonumber(flow[3]) + 1, at_least or 0)
  local number = digits('%d', cycle)
  local name = number .. ':0'
  -- A number that the index knows was used before the store lost its last second, and is not used again.
  while call('ZADD', key .. ':cycles', 'NX', OPEN + cycle * RUNS, name) == 0 do
    cycle = cycle + 1
    number = digits('%d', cycle)
    name = number .. ':0'
  end
  if request ~= '' then
    local first = call('SET', base .. 'request:' .. request, payload .. ' ' .. number .. ' 0 ' .. run_id, 'NX', 'GET', 'PX',
      args.request_ms)
    if first then
      call('ZREM', key .. ':cycles', name)
      return remembered(first, payload, current)
    end
  end
  local run = key .. ':cycle:' .. name
  -- One that was put on record ahead of its time starts at its time.
  local start = ahead and math.max(time, planned) or time
  local fields = planned > 0
    and {'run_id', run_id, 'status', 'running', 'start_time', start, 'facts', facts, 'planned_time', planned}
    or {'run_id', run_id, 'status', 'running', 'start_time', start, 'facts', facts}
  local size = #fields
  if timeout > 0 then
    fields[size + 1], fields[size + 2] = 'deadline', start + timeout
    size = size + 2
  end
  if backfill then
    fields[size + 1], fields[size + 2] = 'backfill', backfill[1]
    size = size + 2
    backfills.begun(key, backfill[1], planned, name, run_id)
  end
  if parent then
    fields[size + 1], fields[size + 2] = 'parent', parent
    size = size + 2
    call('ZADD', key .. ':filling', 0, name)
  end
  if memory ~= '' then fields[size + 1], fields[size + 2] = 'memory', memory end
  if request ~= '' then
    call('HSET', run, 'flow_id', flow_id, 'cycle', number, 'request', request, unpack(fields))
  else
    call('HSET', run, 'flow_id', flow_id, 'cycle', number, unpack(fields))
  end
  if heard then announce(flow_id, cycle, 0, 1, memory == '' and fields or {}) end
  for first = 1, #nodes, 1000 do
    call('SADD', run .. ':nodes', unpack(nodes, first, math.min(first + 999, #nodes)))
  end
  check_at(time + check_in, flow_id .. ':' .. name)
  if flow[6] and tonumber(flow[6]) >= cycle - LOG_CYCLES then
    call('DEL', logs_key(flow_id, digits('%d', cycle - LOG_CYCLES)))
  end
  if plan then
    -- What is due has no line, or it had been answered by that.
    local write = planned_next and planned == due and firings.add or firings.note
    write(key, planned, 'fired', '', name, run_id, nil, label)
  end
  if planned_next then
    call('HSET', key, 'last_cycle', number, 'next_execution', planned_next)
  else
    call('HSET', key, 'last_cycle', number)
  end
  if not rare then return cycle end
  return {'begun', current, cycle, start, planned, next_at or 0, inputs ~= '' and inputs or nil}
end
