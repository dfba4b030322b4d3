-- Removes a flow in bounded steps and leaves a tombstone: from then on, runs that began before it are refused. They
-- began by the clock of the scheduler's store, as did the epoch: where that is behind, the epoch counts, not the time
-- here. Before anything is removed, open runs of the flow are gone for everybody else. When all of it is gone, the
-- tombstone also tells which flow of the name that was; further steps for that flow, or for an earlier one, do nothing.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, flow_id, epoch (of the flow's schedule, as
-- text; "0" for any flow of the name).
-- Returns {removed, done, effects}; for running node tasks, the effects have terminations for their workers.
--!include claim
--!include forget_events
local flow, index, removed = args.flow_id, base .. 'flow_runs:' .. args.flow_id, 0
local tombstone = base .. 'purged:' .. flow
local removed_epoch = string.match(index_call('GET', tombstone) or '', ' %d+$') or ''
if args.epoch ~= '0' and (tonumber(removed_epoch) or 0) >= tonumber(args.epoch) then
  return cmsgpack.pack({removed = 0, done = true, effects = effects})
end
local purged_at = args.epoch ~= '0' and tonumber(args.epoch) < time and args.epoch or stamp
call('SET', tombstone, purged_at .. removed_epoch, 'PX', limits.tombstone_ms)
call('UNLINK', base .. 'retries:' .. flow)
local mark, PURGED = stopping.system_mark('the flow was deleted'), cmsgpack.pack('purged', 0, 0, false, nil)

-- Marks the components of a run as "purged": only this script still sees them. Returns how many there are.
local function mark_purged(run)
  local key, ids = base .. 'run:' .. run, component_ids(run)
  for _, id in ipairs(ids) do
    local v = call('HMGET', key, id .. '/facts', id .. '/state')
    if v[1] and packing.state_of(v[2]) == 'running' then stored_plans.close(packing.facts_of(v[1]).plan, 1) end
    if v[1] then call('HSET', key, id .. '/state', PURGED) end
  end
  return #ids
end

-- Open runs come first, as many as the budget allows.
for _, name in ipairs(index_call('ZRANGEBYSCORE', index, flow_runs.OPEN, 'inf', 'LIMIT', 0, budget)) do
  if budget <= 0 then break end
  local cycle, number = flow_runs.parts(name)
  for at = number or -1, 0, -1 do budget = budget - mark_purged(flow .. ':' .. cycle .. ':' .. at) end
  call('ZADD', index, '-inf', name)
end
-- So do those that are being removed already.
for _, text in ipairs(index_call('LRANGE', base .. 'walks', 0, -1)) do
  local walked = flow_runs.walked(text)
  local of, name = flow_runs.names(walked and walked[1] or '')
  if of == flow then call('ZADD', index, '-inf', name) end
end

local function drop(id, comp)
  local record = task(id)
  if not record then return end
  -- Nothing more is written of this record.
  record.sheet = {n = 0}
  if record.status == 'failed' then remove('dead_letters:' .. comp.user_id, id) end
  if comp.planless then
    stopping.take_out(record, mark)
  elseif record.status == 'pending' or record.status == 'suspended' then
    dequeue(record, comp)
  elseif record.status == 'running' and record.worker_id then
    release_lease(record)
    stopping.add_termination(record, mark)
  elseif record.status == 'running' then
    fan_out.withdraw(record)
  end
  remove('node_tasks_list', id)
  call('HDEL', record.key, record.at .. 'state')
  records[id] = false
  removed = removed + 1
end

-- Removes the items of a mapped node from place `first` on; returns the place at which to go on, nil when all are gone.
local function drop_items(id, comp, first)
  local record = task(id)
  local counts = record and fan_out.counts(record)
  for place = first, counts and counts.begun - 1 or -1 do
    if budget <= 0 then return place end
    budget = budget - 1
    drop(id .. ':' .. string.format('%.0f', place), comp)
  end
  call('UNLINK', base .. 'items:' .. id)
end

-- Removes a component as far as the budget goes; the field `purged` holds the place of the next node. Returns true when
-- all of it is gone.
local function drop_component(run, id)
  local key, at = base .. 'run:' .. run, id .. '/'
  local v = call('HMGET', key, at .. 'facts', at .. 'purged', at .. 'maps', at .. 'purged_items', at .. 'watched')
  if not v[1] then return true end
  local comp, ids, before = packing.facts_of(v[1]), nil, nil
  comp.run = run
  local maps, first = {}, tonumber(v[4]) or 0
  for _, index in ipairs(v[3] and cmsgpack.unpack(v[3]) or {}) do maps[index] = true end
  local function stop_at(place, item)
    call('HSET', key, at .. 'state', PURGED, at .. 'purged', place, at .. 'purged_items', item)
    return false
  end
  comp.planless = not stored_plans.has(comp.plan)
  for _, record in ipairs(comp.planless and stopping.on_record(run, id) or {}) do
    if budget <= 0 then return stop_at(0, 0) end
    budget = budget - 1
    drop(record.id, comp)
  end
  for place = comp.planless and comp.nodes or tonumber(v[2]) or 0, comp.nodes - 1 do
    if budget <= 0 then return stop_at(place, 0) end
    budget = budget - 1
    if not ids or place % PIECE == 0 then ids, before = piece_of(comp.plan, 'ids', place) end
    local task_id = task_of(run, ids[place - before])
    local left = maps[place] and drop_items(task_id, comp, first)
    if left then return stop_at(place, left) end
    first = 0
    drop(task_id, comp)
  end
  forget_events(run, v[5])
  call('HDEL', key, at .. 'facts', at .. 'state')
  call('UNLINK', base .. 'stop:' .. run .. ':' .. id, base .. 'kept:' .. run .. ':' .. id)
  removed = removed + 1
  return true
end

-- Removes a run as far as the budget goes; returns true when all of it is gone.
local function drop_run(run)
  mark_purged(run)
  for _, id in ipairs(component_ids(run)) do
    if budget <= 0 or not drop_component(run, id) then return false end
  end
  call('UNLINK', base .. 'run:' .. run, base .. 'stop:' .. run)
  call('ZREM', base .. 'to_clean', 'run:' .. run)
  return true
end

-- The index names the latest run of each cycle; earlier runs follow it.
while budget > 0 do
  local name = call('ZRANGE', index, 0, 0)[1]
  if not name then break end
  budget = budget - 1
  if drop_run(flow .. ':' .. name) then
    local cycle, number = flow_runs.parts(name)
    call('ZREM', index, name)
    if cycle and number ~= '0' then call('ZADD', index, '-inf', cycle .. ':' .. number - 1) end
  end
end
local done = call('EXISTS', index) == 0
if done then
  local cycles = base .. 'flow_logs:' .. flow
  for _, cycle in ipairs(index_call('ZRANGE', cycles, 0, -1)) do
    call('UNLINK', base .. 'logs:' .. flow .. ':' .. cycle)
  end
  call('UNLINK', cycles)
  call('ZREM', base .. 'to_clean', 'flow:' .. flow)
  if args.epoch ~= '0' then call('SET', tombstone, purged_at .. ' ' .. args.epoch, 'PX', limits.tombstone_ms) end
end
queue_all()
readmission.publish_room()
write_all()
return cmsgpack.pack({removed = removed, done = done, effects = effects})
