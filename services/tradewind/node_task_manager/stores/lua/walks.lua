-- Walks over all records of ended runs, a part of them in each script: to remove them, to give them another time to live, or
-- to take it from them.
-- Those that are under way stand in the list `walks`: {verb, run, run_id, place of the component, place of the node, till,
-- place of the item of this node}.
--!include records
--!include forget_events
local RUNS = 1024
local swept

local function spend(keys) budget = budget - keys end

local function forget(index, member)
  spend(1)
  swept.entries = swept.entries + call('ZREM', base .. index, member)
end

local function walk_later(verb, run, till)
  local run_id = call('HGET', base .. 'run:' .. run, 'run_id')
  if run_id and verb == 'drop' then call('HSET', base .. 'run:' .. run, 'dropped', 1) end
  if run_id then call('RPUSH', base .. 'walks', cmsgpack.pack({verb, run, run_id, 1, 0, till, 0})) end
end

local walk
do
  -- What happens to so many node tasks of a run, to a component, to the run.
  local DROP, EXPIRE, HOLD = {}, {}, {}

  function DROP.node_tasks(ids, comp)
    local keys = {}
    for i, id in ipairs(ids) do keys[i] = base .. 'node_tasks:' .. id end
    swept.node_tasks = swept.node_tasks + call('UNLINK', unpack(keys))
    call('ZREM', base .. 'node_tasks_list', unpack(ids))
    if comp.failed or comp.maps then call('ZREM', base .. 'dead_letters:' .. comp.user_id, unpack(ids)) end
  end

  function DROP.component(run, id, _, comp)
    forget_events(run, comp.watched)
    call('UNLINK', base .. 'component:' .. run .. ':' .. id, base .. 'stop:' .. run .. ':' .. id)
    call('ZREM', base .. 'flow_runs:' .. string.match(run, '^[^:]+'), run .. ':' .. id)
  end

  -- Log lines go with the last run of a cycle that is on record.
  function DROP.run(run)
    local flow, cycle = string.match(run, '^([^:]+):(%d+):')
    call('UNLINK', base .. 'run:' .. run, base .. 'stop:' .. run)
    swept.runs = swept.runs + 1
    if call('ZCOUNT', base .. 'kept_runs:' .. flow, cycle * RUNS, cycle * RUNS + RUNS - 1) == 0 then
      call('UNLINK', base .. 'logs:' .. flow .. ':' .. cycle)
      call('ZREM', base .. 'flow_logs:' .. flow, cycle)
    end
  end

  local function lives_till(name, till) call('PEXPIRE', base .. name, string.format('%.0f', math.max(till - time, 1))) end

  function EXPIRE.node_tasks(ids, _, till)
    for _, id in ipairs(ids) do lives_till('node_tasks:' .. id, till) end
  end

  function EXPIRE.component(run, id, till)
    lives_till('component:' .. run .. ':' .. id, till)
    call('ZADD', base .. 'flow_runs:' .. string.match(run, '^[^:]+'), 'XX', till, run .. ':' .. id)
  end

  function EXPIRE.run(run, till)
    lives_till('run:' .. run, till)
    lives_till('logs:' .. string.match(run, '^[^:]+:%d+'), till)
  end

  -- A run stays as long as the latest run of its cycle.
  function HOLD.node_tasks(ids)
    for _, id in ipairs(ids) do call('PERSIST', base .. 'node_tasks:' .. id) end
  end

  function HOLD.component(run, id)
    call('PERSIST', base .. 'component:' .. run .. ':' .. id)
    call('ZADD', base .. 'flow_runs:' .. string.match(run, '^[^:]+'), 'XX', 'inf', run .. ':' .. id)
  end

  function HOLD.run(run)
    call('PERSIST', base .. 'run:' .. run)
  end

  local VERBS = {drop = DROP, expire = EXPIRE, hold = HOLD}

  -- The ids of as many node tasks of a component as the budget allows, from a place on, and the place that follows. Items of a
  -- mapped node stand before it.
  local function some_of(run, comp, place, item)
    local ids, mapped, piece, before = {}, {}, nil, nil
    for _, index in ipairs(comp.maps and cmsgpack.unpack(comp.maps) or {}) do mapped[index] = true end
    while place < comp.nodes and budget > 0 do
      if not piece or place % PIECE == 0 then piece, before = piece_of(comp.plan, 'ids', place) end
      local id = task_of(run, piece[place - before])
      local items = mapped[place] and tonumber(call('HGET', base .. 'node_tasks:' .. id, 'items_begun') or 0) or 0
      while item < items and budget > 0 do
        ids[#ids + 1] = id .. ':' .. item
        item = item + 1
        spend(1)
      end
      if item < items then break end
      ids[#ids + 1] = id
      place, item = place + 1, 0
      spend(1)
    end
    return ids, place, item
  end

  -- Goes on with a component; returns the places to go on at, or nil. One that is not finished is left alone.
  local function walk_component(verb, run, id, place, item, till)
    local v = call('HMGET', base .. 'component:' .. run .. ':' .. id, 'status', 'facts', 'failed', 'maps', 'watched')
    spend(2)
    if v[1] ~= 'finished' then return end
    local comp = unpack_facts(v[2])
    comp.failed, comp.maps, comp.watched = v[3], v[4], v[5]
    if call('EXISTS', base .. 'plan:' .. comp.plan) == 1 then
      local ids
      ids, place, item = some_of(run, comp, place, item)
      if #ids > 0 then verb.node_tasks(ids, comp, till) end
      if place < comp.nodes then return place, item end
    end
    verb.component(run, id, till, comp)
  end

  -- Goes on with a run; true when it is through. Another run of its name is left alone.
  local function walk_run(item)
    local name, run, run_id, part, place, till, offset = unpack(item)
    local v = call('HMGET', base .. 'run:' .. run, 'run_id', 'components')
    if v[1] ~= run_id then return true end
    local ids, verb = cmsgpack.unpack(v[2]), VERBS[name]
    for at = part, #ids do
      local left, left_of = place, offset
      if budget > 0 then left, left_of = walk_component(verb, run, ids[at], place, offset, till) end
      if left then
        item[4], item[5], item[7] = at, left, left_of
        return false
      end
      place, offset = 0, 0
    end
    verb.run(run, till)
    return true
  end

  function walk()
    while budget > 0 do
      local first = call('LINDEX', base .. 'walks', 0)
      if not first then return end
      local item = cmsgpack.unpack(first)
      spend(1)
      if walk_run(item) then call('LPOP', base .. 'walks') else call('LSET', base .. 'walks', 0, cmsgpack.pack(item)) end
    end
  end
end
