-- Removes a flow in bounded steps and leaves a tombstone: a run begun before it is refused from then on. What is open of
-- it is gone for everybody else from the first step on.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, flow_id.
-- Returns {removed, done, effects}; running node tasks are told to their workers as terminations.
--!include claim
--!include forget_events
call('SET', base .. 'purged:' .. args.flow_id, time, 'PX', limits.tombstone)
call('UNLINK', base .. 'retries:flow:' .. args.flow_id)
local index, removed = base .. 'flow_runs:' .. args.flow_id, 0
local mark = cmsgpack.pack({reason = 'the flow was deleted', by = 'system', at = time})

-- A component in status "purged" is there for this script only.
local function mark_purged(key)
  local v = call('HMGET', key, 'status', 'facts')
  if v[1] == 'running' then close_plan(unpack_facts(v[2]).plan, 1) end
  if v[1] then call('HSET', key, 'status', 'purged') end
end

-- Open components come first.
for _, name in ipairs(call('ZRANGEBYSCORE', index, 'inf', 'inf')) do
  mark_purged(base .. 'component:' .. name)
  call('ZADD', index, '-inf', name)
end

local function drop(id, comp)
  local record = task(id)
  if not record then return end
  if record.status == 'pending' or record.status == 'suspended' then dequeue(record, comp) end
  if record.status == 'failed' then take('dead_letters:' .. comp.user_id, id) end
  if record.status == 'running' and record.worker_id then
    release_lease(record)
    stopping.tell(record, mark)
  elseif record.status == 'running' then
    fan_out.withdraw(record)
  end
  take('node_tasks_list', id)
  call('UNLINK', record.key)
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

-- A run of several components stays until the last of them is removed.
local function drop_run(run, parts)
  if parts and call('HINCRBY', run, 'removed', 1) < parts then
    call('PEXPIRE', run, limits.retention)
  else
    call('UNLINK', run)
  end
end

-- Removes a component as far as the budget goes, `purged` being the place of the next node; true when all of it is gone.
local function drop_component(run, id)
  local key = base .. 'component:' .. run .. ':' .. id
  local v = call('HMGET', key, 'facts', 'purged', 'maps', 'purged_items', 'watched')
  if v[1] then
    local comp, ids, before = unpack_facts(v[1]), nil, nil
    comp.run = run
    local maps, first = {}, tonumber(v[4]) or 0
    for _, index in ipairs(v[3] and cmsgpack.unpack(v[3]) or {}) do maps[index] = true end
    for place = tonumber(v[2]) or 0, comp.nodes - 1 do
      if budget <= 0 then
        call('HSET', key, 'status', 'purged', 'purged', place, 'purged_items', 0)
        return false
      end
      budget = budget - 1
      if not ids or place % PIECE == 0 then ids, before = piece_of(comp.plan, 'ids', place) end
      local task_id = task_of(run, ids[place - before])
      local left = maps[place] and drop_items(task_id, comp, first)
      if left then
        call('HSET', key, 'status', 'purged', 'purged', place, 'purged_items', left)
        return false
      end
      first = 0
      drop(task_id, comp)
    end
    drop_run(base .. 'run:' .. run, comp.parts)
    forget_events(run, v[5])
    removed = removed + 1
  end
  call('UNLINK', key, base .. 'stop:' .. run, base .. 'stop:' .. run .. ':' .. id, base .. 'kept:' .. run .. ':' .. id)
  return true
end

while budget > 0 do
  local name = call('ZRANGE', index, 0, 0)[1]
  if not name then break end
  budget = budget - 1
  if drop_component(string.match(name, '^(.+):([^:]+)$')) then call('ZREM', index, name) end
end
local done = call('EXISTS', index) == 0
if done then
  local logs = base .. 'flow_logs:' .. args.flow_id
  for _, cycle in ipairs(call('ZRANGE', logs, 0, -1)) do
    call('UNLINK', base .. 'logs:' .. args.flow_id .. ':' .. cycle)
  end
  call('UNLINK', logs, base .. 'kept_runs:' .. args.flow_id)
end
reopen()
write_queues(queues)
leave_waiting()
write_all()
return cmsgpack.pack({removed = removed, done = done, effects = effects})
