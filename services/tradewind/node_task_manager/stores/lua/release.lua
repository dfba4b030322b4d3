--!include slots
--!include scheduler_events
-- What follows when a node task becomes ready or terminal: queues, signals, skips, stops, the end of a component.
local work, finished, queues, drained = {}, {}, {}, false
-- What a node that runs once for each item of a list needs besides; see fan_out.
local fan_out = {}
-- What a node that waits without a worker needs besides; see suspension.
local suspension = {}
-- What a rerun needs that takes over results; see keep.
local keeping = {}
-- What stops node tasks and components; see below.
local stopping = {}
local TURN = 1000000
fresh(function()
  work, drained = {}, false
  if #finished > 0 then finished = {} end
  if next(queues) then queues = {} end
end)

-- Work is done in the order in which it came up; what one script may not do is left in `todo` for the next. A record among it
-- is one whose outputs are to be delivered.
local function later(kind, comp, index, offset, source)
  work[#work + 1] = {kind, comp, index, offset, source}
end

local function queue_of(node_type, user)
  local name = node_type .. ':' .. user
  local queue = queues[name]
  if not queue then
    queue = {key = base .. 'ready:' .. name, type = node_type, user = user, added = {}, removed = {}}
    queues[name] = queue
  end
  return queue
end

local function enqueue(record, comp)
  local entry = record.entry or node(comp.plan, record.index)
  if entry.map and fan_out.owns(record) then return fan_out.offer(record, comp) end
  if entry.wait or record.status == 'suspended' then return suspension.ready(record, comp, entry) end
  changed(comp, record.status == 'running' and -1 or 0, record, 'queued')
  record.status = 'pending'
  record.ready_at, record.restated = stamp, true
  record.comp = comp
  record.start_by = entry.start > 0 and time + entry.start
  if entry.total then
    if not more(record).total_at then set(record, 'total_at', time + entry.total) end
    record.start_by = math.min(record.start_by or math.huge, tonumber(record.total_at))
  end
  -- A higher priority stands where one would that has waited longer.
  record.rank = entry.ahead and string.format('%.0f', time - entry.ahead) or stamp
  local queue = queue_of(entry.type, comp.user_id)
  local items = queue.added
  local n = #items
  items[n + 1] = record.rank
  items[n + 2] = record.id
  queue.ranked = queue.ranked or entry.ahead ~= nil
  queue.bound = queue.bound or entry.flow_max or entry.key or entry.pace
end

-- Letting in what limits held back.
local loosened = {}
fresh(function() if #loosened > 0 then loosened = {} end end)
local readmission = {}
do
  -- Puts up to `count` of a group that a limit held back into their queue again; returns how many.
  function readmission.group(limit, group, count)
    local node_type, user = string.match(group, '^([^:]+):([^:]+):')
    local key = base .. 'blocked:' .. limit .. '|' .. group
    local back = call('ZPOPMIN', key, count)
    for i = 1, #back, 2 do
      local record, queue = task(back[i]), queue_of(node_type, user)
      set(record, 'blocked', '')
      record.rank, record.comp = back[i + 1], component_of(record)
      table.insert(queue.added, back[i + 1])
      table.insert(queue.added, back[i])
      queue.ranked, queue.bound = true, true
    end
    if call('EXISTS', key) == 0 then slots.forget_group(limit, group) end
    return #back / 2
  end

  -- Puts back up to `most` of a group that the rate of a key held back, as far as there are tokens now.
  local function paced_group(limit, group, most)
    local _, length, short = slots.pace(limit, group)
    local count = short > 0 and 0 or math.min(most, math.floor(-short / length) + 1)
    if count > 0 then readmission.group(limit, group, count) end
    if call('SISMEMBER', base .. 'blocked_by:' .. limit, group) == 1 then
      slots.look_again(limit, count > 0 and count * length or short)
    end
  end

  -- Puts back up to `count` of a group that a limit held back and now has room for; `paced` of one that a rate did.
  local function some_of(limit, group, count, paced)
    if string.sub(limit, 1, 5) == 'pace:' then
      paced_group(limit, group, paced)
    elseif tonumber(string.match(group, '%d+$')) > slots.held(limit) then
      readmission.group(limit, group, count)
    end
  end

  function readmission.unpark(user, node_type)
    call('ZREM', base .. 'parked', user .. ':' .. node_type)
    queue_of(node_type, user).rejoins = true
  end

  -- Lets in what was held back by a limit that so many let go of.
  function readmission.open(limit, count)
    local PACED_AT_ONCE = 100
    local kind, rest = string.match(limit, '^(%a+):(.+)$')
    if kind == 'user' then
      if room_of_user(rest) > 0 then
        for _, member in ipairs(call('ZRANGE', base .. 'parked', '[' .. rest .. ':', '(' .. rest .. ';', 'BYLEX')) do
          readmission.unpark(string.match(member, '^(.+):(.+)$'))
        end
      end
    elseif kind == 'type' then
      loosened[#loosened + 1] = rest
    else
      for _, group in ipairs(call('SMEMBERS', base .. 'blocked_by:' .. limit)) do some_of(limit, group, count, PACED_AT_ONCE) end
    end
  end

  -- Puts back as many of a group as others of it readmission room for.
  function readmission.spared(name, count)
    local limit, group = string.match(name, '^([^|]*)|(.+)$')
    some_of(limit, group, count, count)
  end
end

-- Lets in what limits held back that have room now.
local function reopen()
  if next(freed) then
    local now_free = freed
    freed = {}
    for limit, count in pairs(now_free) do readmission.open(limit, count) end
  end
  if next(spared) then
    local groups = spared
    spared = {}
    for name, count in pairs(groups) do readmission.spared(name, count) end
  end
end

-- Takes out what waits, be it in a queue, for its next attempt or suspended.
local function dequeue(record, comp)
  local entry = node(comp.plan, record.index)
  if entry.map and fan_out.owns(record) then return fan_out.withdraw(record) end
  if record.status == 'pending' and not slots.withdraw(record, entry, comp, own_limits(entry, comp)) then
    local items = queue_of(entry.type, comp.user_id).removed
    items[#items + 1] = record.id
  end
  take('start_deadlines', record.id)
  take('delayed', record.id)
  set(record, 'retry_at', 0)
end

-- Where those who left the ring of a type stood in virtual time stays known while it is later than where the last turn began.
local function remember_leaver(node_type, user, at) call('ZADD', base .. 'left:' .. node_type, at, user) end

-- Users whose queue was emptied leave the ring of its type; then those that have node tasks now join it where the last turn
-- began, or where they stood themselves when they left it, if that is later: so whoever comes anew is next, and nobody gains
-- or loses turns by having had none, not even one who has a single one again and again.
local function write_queues(changed)
  if not next(changed) then return end
  local emptied, heads = {}, {}
  for _, queue in pairs(changed) do
    in_pieces('ZADD', queue.key, queue.added)
    in_pieces('ZREM', queue.key, queue.removed)
    queue.empty = #queue.removed > 0 and call('EXISTS', queue.key) == 0
    if queue.empty then
      local at = call('ZSCORE', base .. 'ring:' .. queue.type, queue.user)
      if at then
        call('ZREM', base .. 'ring:' .. queue.type, queue.user)
        remember_leaver(queue.type, queue.user, at)
        emptied[queue.type] = true
      end
    end
  end
  for node_type in pairs(emptied) do
    if call('EXISTS', base .. 'ring:' .. node_type) == 0 then
      call('ZREM', base .. 'ready_types', node_type)
      call('DEL', base .. 'left:' .. node_type)
    end
  end
  for _, queue in pairs(changed) do
    if #queue.added > 0 and not queue.empty or queue.rejoins and call('EXISTS', queue.key) == 1 then
      local ring, left = base .. 'ring:' .. queue.type, base .. 'left:' .. queue.type
      local begun = heads[queue.type]
      if begun == nil then
        begun = call('EXISTS', ring) == 1 and tonumber(call('ZSCORE', left, '') or 0)
        heads[queue.type] = begun
        if not begun then call('ZADD', base .. 'ready_types', 'NX', time, queue.type) end
      end
      local stood = begun and call('ZSCORE', left, queue.user)
      call('ZADD', ring, 'NX', math.max(begun or 0, tonumber(stood or 0)), queue.user)
      if stood then call('ZREM', left, queue.user) end
    end
  end
end

local function release_lease(record)
  free_slots(record)
  leasing.over(record)
end

-- A run that has ended gets its time to live, with all that belongs to it.
local function expire_run(comp)
  local run, ids = base .. 'run:' .. comp.run, {comp.id}
  if comp.parts then
    -- A run that is being purged is gone already, and its parts go with it.
    if call('EXISTS', run) == 0 or call('HINCRBY', run, 'open', -1) > 0 then return end
    ids = cmsgpack.unpack(call('HGET', run, 'components'))
  end
  expiring[#expiring + 1] = run
  if comp.partition == NO_PARTITION then
    -- It leaves the list of its user when its records expire.
    put('ended_runs', comp.user_id .. ':' .. comp.run, time + limits.retention)
    return later('expire', comp, 0, 0)
  end
  local index = base .. 'flow_runs:' .. string.match(comp.run, '^[^:]+')
  for _, id in ipairs(ids) do
    call('ZADD', index, 'XX', time + limits.retention, comp.run .. ':' .. id)
    local part = id == comp.id and comp or component(comp.run, id)
    if part then later('expire', part, 0, 0) end
    for _, index in ipairs(part and part.maps and cmsgpack.unpack(part.maps) or {}) do later('expire_items', part, index, 0) end
  end
  put('to_clean', 'run:' .. comp.run, time + limits.settle)
end

-- What a component's only sink has just emitted goes along with the event, when it is small.
local function remember_answer(comp, entry, outputs)
  if not outputs then return end
  local size = 0
  for _, output in ipairs(outputs) do size = size + #output[2] end
  if size <= limits.answer_bytes then comp.sink, comp.outputs = entry.id, outputs end
end

-- The one way into a terminal status. Of a component that is stopped nothing is delivered: the stop reaches every node.
local function finish(record, comp, status, reason)
  local entry = record.entry or node(comp.plan, record.index)
  if reason then set(record, 'reason', reason) end
  changed(comp, record.status == 'running' and -1 or 0, record, status)
  record.status = status
  record.ended = true
  note(record, 'ended_at', stamp)
  totals[status] = (totals[status] or 0) + 1
  if entry.map and fan_out.ended(record, comp, entry, status, reason) then return end
  comp[status] = comp[status] + 1
  comp.open = comp.open - 1
  comp.counted = true
  if status ~= 'completed' then comp.eventful = true end
  if entry.outputs == 0 then
    if status == 'completed' then
      comp.sinks = comp.sinks + 1
      if entry.only_sink then remember_answer(comp, entry, record.outputs) end
    end
  elseif not comp.stop then
    record.comp = comp
    work[#work + 1] = record
  end
  if status == 'failed' and comp.policy == 'fail_fast' then
    local reason = 'node "' .. entry.id .. '" failed and the flow fails fast'
    stopping.component(comp, cmsgpack.pack({reason = reason, by = 'system', at = time}))
  end
  if comp.open == 0 then
    finished[#finished + 1] = comp
    expire_run(comp)
  end
end

local function create(comp, id, entry, index)
  local record = {id = id, key = base .. 'node_tasks:' .. id, status = 'registered', component_id = comp.id, index = index,
    waiting = entry.inputs, live = 0, whole = true, created = true, n = 0, changes = {nil, nil, nil, nil, nil, nil}, comp = comp, entry = entry,
    registered_at = stamp, ready_at = false, attempt = nil, nonce = false, worker_id = false, started_at = false, close_at = nil,
    edge = entry.inputs == 1 and entry.into[1] or nil, restated = true}
  records[id] = record
  put('node_tasks_list', id, stamp)
  return record
end

local function wanted(run_if, edges, live)
  if run_if == 'all_succeeded' then return live == edges end
  return run_if == 'all_done' or live > 0
end

-- The value that the source emitted by a handle, or false.
local function emitted(source, handle)
  if source.outputs then
    for _, output in ipairs(source.outputs) do
      if output[1] == handle then return output[2] end
    end
    return false
  end
  local field = 'out:' .. handle
  if source[field] == nil then source[field] = call('HGET', source.key, field) end
  return source[field]
end

local function deliver_edge(comp, source, entry, edge)
  local target = node(comp.plan, edge[2])
  local id = task_of(comp.run, target.id)
  -- What waits for one signal has no record before it, unless somebody terminated it early.
  local record = (target.inputs > 1 or comp.early) and task(id, 'signals') or create(comp, id, target, edge[2])
  if record.status ~= 'registered' then return end
  local value = source.status == 'completed' and emitted(source, edge[1])
  record.waiting = (record.waiting or target.inputs) - 1
  record.signalled = target.inputs > 1
  if value or (source.status == 'failed' and comp.policy == 'continue') then
    record.live = (record.live or 0) + 1
    if value then
      set(record, edge[3], #value <= limits.signal_bytes and value or '@')
    end
  elseif not more(record).dead then
    local why = source.status == 'completed' and 'did not emit "' .. edge[1] .. '"' or source.status == 'failed' and 'failed'
      or 'was ' .. source.status
    set(record, 'dead', 'node "' .. entry.id .. '" ' .. why)
  end
  if record.waiting > 0 then return end
  if wanted(target.run_if, target.inputs, record.live or 0) then
    enqueue(record, comp)
  else
    finish(record, comp, 'skipped', more(record).dead)
  end
end

-- Each of these does as much as the budget allows and returns the offset at which to go on, or nil.
local WORK = {}

function WORK.deliver(comp, offset, index, source)
  if comp.stop then return end
  local entry = source and source.entry or node(comp.plan, index)
  local piece, before = entry.out, -1
  source = source or task(task_of(comp.run, entry.id))
  for place = offset, entry.outputs do
    if budget <= 0 then return place end
    budget = budget - 1
    if place > PIECE and (place == offset or place % PIECE == 1) then
      piece, before = piece_of(comp.plan, 'out:' .. index, place - 1)
    end
    deliver_edge(comp, source, entry, piece[place - 1 - before])
  end
end

function WORK.entries(comp, offset, entries)
  if comp.stop then return end
  local piece, before
  for at = offset, entries - 1 do
    if budget <= 0 then return at end
    budget = budget - 1
    if not piece or at % PIECE == 0 then piece, before = piece_of(comp.plan, 'entries', at) end
    local place = piece[at - before]
    local entry = node(comp.plan, place)
    local id = task_of(comp.run, entry.id)
    if not (comp.early and task(id)) then enqueue(create(comp, id, entry, place), comp) end
  end
end

-- Ten keys that get their time to live are as much work as one record that is written.
function WORK.expire(comp, offset)
  local prefix, n, ids, before = base .. 'node_tasks:', #expiring, nil, nil
  if offset == 0 then
    n = n + 1
    expiring[n] = comp.key
  end
  for place = offset, comp.nodes - 1 do
    if budget <= 0 then return place end
    if place % 10 == 0 then budget = budget - 1 end
    if not ids or place % PIECE == 0 then ids, before = piece_of(comp.plan, 'ids', place) end
    n = n + 1
    expiring[n] = prefix .. task_of(comp.run, ids[place - before])
  end
end

-- Stopping. A stop is put down where it is meant for, and reaches every node.
do
  function stopping.tell(record, mark)
    effects.terminations = effects.terminations or {}
    table.insert(effects.terminations, {worker_id = record.worker_id, task_id = record.id, attempt = record.attempt,
      nonce = record.nonce, stop = cmsgpack.unpack(mark)})
  end

  -- Asks a node task that runs to stop.
  function stopping.request(record, mark)
    -- One that runs without a worker is a mapped node's.
    if not record.worker_id then return fan_out.stop(record, mark) end
    if record.stop then return end
    set(record, 'stop', mark)
    put('inflight', record.id, time + limits.stop_grace)
    stopping.tell(record, mark)
    local comp = component_of(record)
    if comp then changed(comp, 0, record, 'stopping') end
  end

  -- Ends one that no worker has: it is terminated if it is suspended, else skipped.
  function stopping.end_idle(record, comp, reason)
    local status = record.status == 'suspended' and 'terminated' or 'skipped'
    if status == 'terminated' then suspension.leave(record, comp) end
    if record.status ~= 'registered' then dequeue(record, comp) end
    finish(record, comp, status, reason)
  end

  function stopping.component(comp, mark)
    if comp.stop or comp.status == 'finished' then return end
    set_eventful(comp, 'stop', mark)
    changed(comp, 0)
    if comp.early ~= 'keep' then later('stop', comp, 0, 0) end
  end

  -- Work: stops the nodes of a component from a place on.
  function stopping.stop(comp, offset)
    if comp.open == 0 then return end
    local reason = cmsgpack.unpack(comp.stop).reason
    local ids, before
    for place = offset, comp.nodes - 1 do
      if budget <= 0 then return place end
      budget = budget - 1
      if not ids or place % PIECE == 0 then ids, before = piece_of(comp.plan, 'ids', place) end
      local id = task_of(comp.run, ids[place - before])
      local record = task(id) or create(comp, id, node(comp.plan, place), place)
      if record.status == 'running' then
        stopping.request(record, comp.stop)
      elseif not TERMINAL[record.status] then
        stopping.end_idle(record, comp, reason)
      end
    end
  end
end

-- Work that is left for later scripts.
local todo = {}
do
  function todo.delivery(record, offset) return {'deliver', record.comp, record.index, offset, record} end

  local function packed(item)
    if item.key then item = todo.delivery(item, 1) end
    local comp = item[2]
    return cmsgpack.pack({item[1], comp.run, comp.id, comp.run_id, item[3], item[4]})
  end

  -- The item that `packed` wrote, or nil when its component is gone, or another one has its name.
  function todo.unpacked(text)
    local item = cmsgpack.unpack(text)
    local comp = component(item[2], item[3])
    if comp and comp.run_id == item[4] then return {item[1], comp, item[5], item[6]} end
  end

  function todo.put_back(item) call('LPUSH', base .. 'todo', packed(item)) end

  function todo.leave(items, from)
    local left = {}
    for at = from, #items do left[#left + 1] = packed(items[at]) end
    in_pieces('RPUSH', base .. 'todo', left)
  end

  -- The function that does such work.
  function todo.doing(kind) return stopping[kind] or keeping[kind] or fan_out[kind] end
end

-- Does the work of this script, then what earlier ones left, as far as the budget goes; the rest is left to later ones.
local function work_off()
  local at, own = 1, true
  drained = false
  while budget > 0 do
    local item = own and work[at]
    local popped = not item and call('LPOP', base .. 'todo')
    if popped then
      budget = budget - 1
      own, item = false, todo.unpacked(popped)
    else
      own, item = true, work[at]
      if not item then
        drained = true
        break
      end
      at = at + 1
    end
    if item and item.key then
      local offset = WORK.deliver(item.comp, 1, item.index, item)
      if offset then
        at = at - 1
        work[at] = todo.delivery(item, offset)
      end
    elseif item then
      local offset = (WORK[item[1]] or todo.doing(item[1]))(item[2], item[4], item[3], item[5])
      if offset then
        item[4] = offset
        if popped then todo.put_back(item) else at = at - 1 end
      end
    end
  end
  if at <= #work then todo.leave(work, at) end
  work = {}
end

local function announce(comp)
  comp.status = 'finished'
  set(comp, 'finished_at', stamp)
  if comp.partition == NO_PARTITION then return end_ad_hoc(comp, node(comp.plan, 0).type) end
  scheduler.tell(comp.partition, 'finished', {time, comp.run, comp.run_id, comp.id, comp.nodes, comp.completed, comp.failed,
    comp.terminated, comp.skipped, comp.sinks, comp.sink or '', comp.outputs or {}, comp.stop and cmsgpack.unpack(comp.stop) or nil})
  if comp.failed > 0 or comp.stop and comp.early ~= 'unwanted' then notices.component_failed(comp) end
end

-- A plan gets its time to live when nothing uses it any more; that of a run outside flows goes soon after the run.
local function close_plan(plan, count, ad_hoc)
  if call('HINCRBY', base .. 'plan:' .. plan, 'open', -count) <= 0 then
    local ttl = ad_hoc and limits.retention + limits.tombstone or limits.plan_retention
    call('PEXPIRE', base .. 'plan:' .. plan, ttl)
  end
end

local function settle()
  work_off()
  if #finished == 0 then return end
  local closed, ad_hoc = {}, {}
  for _, comp in ipairs(finished) do
    announce(comp)
    closed[comp.plan] = (closed[comp.plan] or 0) + 1
    ad_hoc[comp.plan] = comp.partition == NO_PARTITION
  end
  for plan, count in pairs(closed) do close_plan(plan, count, ad_hoc[plan]) end
  finished = {}
end
