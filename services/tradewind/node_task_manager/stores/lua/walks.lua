-- Walks over all node tasks of ended runs, a part of them in each script, to remove everything about these runs. The
-- list `walks` holds the walks under way: {run, run_id, place of the component, place of the node, place of the item of
-- this node}.
--!include records
--!include forget_events
-- `swept` counts what is removed.
local walks = {}

function walks.spend(keys) budget = budget - keys end

function walks.forget(index, member)
  walks.spend(1)
  walks.swept.entries = walks.swept.entries + index_call('ZREM', base .. index, member)
end

-- Returns when the last component of a run ended, and its partition; nil when one is open, being purged, or gone.
function walks.ended_at(run)
  local at, partition = nil, nil
  for _, id in ipairs(component_ids(run)) do
    local v = call('HMGET', base .. 'run:' .. run, id .. '/facts', id .. '/state')
    local status, _, _, _, finished_at = packing.state_of(v[2])
    if not v[1] or status ~= 'finished' then return nil end
    at, partition = math.max(at or 0, tonumber(finished_at)), packing.facts_of(v[1]).partition
  end
  return at, partition
end

-- Begins to remove the latest ended run of a cycle (`<flow>:<cycle>:`) up to a number; once it is removed, those before
-- it follow one by one.
function walks.begin(cycle, number)
  for at = number, 0, -1 do
    local run = cycle .. at
    local run_id = walks.ended_at(run) and known_run(run)
    walks.spend(3)
    if run_id then
      call('HSET', base .. 'run:' .. run, 'dropped', 1)
      index_call('RPUSH', base .. 'walks', cmsgpack.pack({run, run_id, 1, 0, 0}))
      return
    end
  end
end

do
  local function drop_node_tasks(ids, comp)
    walks.swept.node_tasks = walks.swept.node_tasks + index_call('ZREM', base .. 'node_tasks_list', unpack(ids))
    if comp.failed or comp.maps then index_call('ZREM', base .. 'dead_letters:' .. comp.user_id, unpack(ids)) end
  end

  -- Whether the index of a flow has a run of a cycle, open or ended.
  local function is_indexed(flow, cycle)
    local index, first, last = base .. 'flow_runs:' .. flow, cycle * flow_runs.EACH,
      cycle * flow_runs.EACH + flow_runs.EACH - 1
    return index_call('ZCOUNT', index, first, last) > 0
      or call('ZCOUNT', index, flow_runs.OPEN + first, flow_runs.OPEN + last) > 0
  end

  -- Removes a run; with the last run of a cycle on record, also its log lines.
  local function drop_run(run)
    local flow, cycle = string.match(run, '^([^:]+):(%d+):')
    call('UNLINK', base .. 'run:' .. run, base .. 'stop:' .. run)
    walks.swept.runs = walks.swept.runs + 1
    if not is_indexed(flow, cycle) then
      call('UNLINK', base .. 'logs:' .. flow .. ':' .. cycle)
      index_call('ZREM', base .. 'flow_logs:' .. flow, cycle)
    end
  end

  -- Returns the ids of as many node tasks of a component as the budget allows, from a place on, and the place to go on
  -- at. Items of a mapped node come before it.
  local function some_of(run, comp, place, item)
    local ids, mapped, piece, before = {}, {}, nil, nil
    for _, index in ipairs(comp.maps and cmsgpack.unpack(comp.maps) or {}) do mapped[index] = true end
    while place < comp.nodes and budget > 0 do
      if not piece or place % PIECE == 0 then piece, before = piece_of(comp.plan, 'ids', place) end
      local id = task_of(run, piece[place - before])
      local items = mapped[place] and tonumber(call('HGET', base .. 'run:' .. run, place_of(id, run) .. 'items_begun')
        or 0) or 0
      while item < items and budget > 0 do
        ids[#ids + 1] = id .. ':' .. item
        item = item + 1
        walks.spend(1)
      end
      if item < items then break end
      ids[#ids + 1] = id
      place, item = place + 1, 0
      walks.spend(1)
    end
    return ids, place, item
  end

  -- Goes on with a component; returns the places to go on at, or nil. A component that is not finished is left alone.
  local function walk_component(run, id, place, item)
    local at = id .. '/'
    local v = call('HMGET', base .. 'run:' .. run, at .. 'state', at .. 'facts', at .. 'failed', at .. 'maps',
      at .. 'watched')
    walks.spend(2)
    if not v[2] or packing.state_of(v[1]) ~= 'finished' then return end
    local comp = packing.facts_of(v[2])
    comp.failed, comp.maps = v[3], v[4]
    if stored_plans.has(comp.plan) then
      local ids
      ids, place, item = some_of(run, comp, place, item)
      if #ids > 0 then drop_node_tasks(ids, comp) end
      if place < comp.nodes then return place, item end
    end
    forget_events(run, v[5])
    call('UNLINK', base .. 'stop:' .. run .. ':' .. id)
  end

  -- Goes on with a run; returns true when it is done. Another run of the same name is left alone.
  local function walk_run(walked)
    local run, run_id, part, place, item = unpack(walked)
    local known, ids = known_run(run)
    if known ~= run_id then return true end
    for at = part, #ids do
      local left, item_left = place, item
      if budget > 0 then left, item_left = walk_component(run, ids[at], place, item) end
      if left then
        walked[3], walked[4], walked[5] = at, left, item_left
        return false
      end
      place, item = 0, 0
    end
    drop_run(run)
    return true
  end

  function walks.go_on()
    while budget > 0 do
      local first = index_call('LINDEX', base .. 'walks', 0)
      if not first then return end
      local walked = flow_runs.walked(first)
      walks.spend(1)
      if not walked then
        call('LPOP', base .. 'walks')
      elseif walk_run(walked) then
        call('LPOP', base .. 'walks')
        local cycle, number = string.match(walked[1], '^(.+:)(%d+)$')
        walks.begin(cycle, number - 1)
      else
        call('LSET', base .. 'walks', 0, cmsgpack.pack(walked))
      end
    end
  end
end
