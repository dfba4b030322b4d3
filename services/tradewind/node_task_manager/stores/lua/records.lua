-- Records of node tasks and components, read once and written once per script.
-- Uses args: base (key prefix with its tag), now (ms, 0 for the server's time), limits (JSON).
local call = redis.call
local base, limits, time, stamp, budget, effects
local records, components, pieces = {}, {}, {}
-- What many runs use: limits by their text, and nodes by plan and place, each plan of one edition.
local limits_text, plans, editions, known_nodes = nil, {}, {}, 0

fresh(function()
  local MOST_KNOWN = 5000
  if not limits or args.limits ~= limits_text then limits, limits_text = cjson.decode(args.limits or '{}'), args.limits end
  base, time = args.base, args.now and now(args.now)
  stamp = time and string.format('%.0f', time)
  budget = limits.records
  effects = {assignments = {}, results = {}, todo = 0}
  records, components = {}, {}
  if next(pieces) then pieces = {} end
  if known_nodes > MOST_KNOWN then plans, editions, known_nodes = {}, {}, 0 end
end)

local function know_edition(plan, edition)
  if editions[plan] ~= edition then plans[plan], editions[plan] = nil, edition end
end

-- Lists of a plan (ids, entries, edges out of a node) are kept in pieces of this many, as redis_plans.py writes them.
local PIECE = 500
local TERMINAL = {completed = true, failed = true, terminated = true, skipped = true}
-- The id of a node task, which is that of its run when the run is an ad-hoc task; and the run that it names.
local function task_of(run, node_id) return node_id == '' and run or run .. ':' .. node_id end
local function run_of(task)
  return string.match(task, '^([^:]+:[^:]+:[^:]+):') or string.match(task, '^task:[^:]+$') or (string.match(task, '^(.+):[^:]+$'))
end

-- What all node tasks come to have, in their field `facts`: as values one after the other they are far less to write and to
-- read than a field for each.
local function pack_task(record)
  return cmsgpack.pack(record.component_id, record.index, record.registered_at, record.ready_at or nil, record.attempt,
    record.nonce or nil, record.worker_id or nil, record.started_at or nil, record.close_at, record.edge)
end

-- The record of a node task, or false. What else it is looked at for is read along: `input` (its only one, if it has but one) or
-- `signals` (`waiting`, false when none has come, and `live`).
-- Here and in `create` what most records come to hold is named at once, if as nil: to make room for it later costs more.
local task
do
  local function known(id, key, status, stop, slots, component_id, index, registered_at, ready_at, attempt, nonce, worker_id,
    started_at, close_at, edge)
    return {id = id, key = key, changes = {nil, nil, nil, nil, nil, nil, nil, nil}, n = 0, status = status, stop = stop,
      waiting = nil, live = nil, slots = slots, component_id = component_id, index = index,
      registered_at = registered_at, ready_at = ready_at, attempt = attempt, nonce = nonce, worker_id = worker_id,
      started_at = started_at, close_at = close_at, edge = edge, comp = nil, entry = nil, outputs = nil, ended = nil, restated = nil}
  end

  local function read(id, also)
    local key, v = base .. 'node_tasks:' .. id, nil
    if also == 'input' then
      v = call('HMGET', key, 'status', 'facts', 'stop', 'slots', 'input')
    elseif also then
      v = call('HMGET', key, 'status', 'facts', 'stop', 'slots', 'waiting', 'live')
    else
      v = call('HMGET', key, 'status', 'facts', 'stop', 'slots')
    end
    local record = v[1] and known(id, key, v[1], v[3], v[4], cmsgpack.unpack(v[2]))
    if record and also == 'input' then
      record.input = v[5]
    elseif record and also then
      record.waiting, record.live = tonumber(v[5]) or false, tonumber(v[6])
    end
    records[id] = record
    return record
  end

  function task(id, also)
    local record = records[id]
    if record == nil then return read(id, also) end
    if also == 'signals' and record and record.waiting == nil then
      local v = call('HMGET', record.key, 'waiting', 'live')
      record.waiting, record.live = tonumber(v[1]) or false, tonumber(v[2])
    end
    return record
  end
end

-- What every change needs of a node task is read at once, the rest by this.
local function more(record)
  if not record.whole then
    local MORE = {'lost', 'dead', 'failures', 'retry_at', 'settled', 'total_at', 'beat', 'beat_by',
      'history', 'postponed', 'resumed', 'blocked'}
    record.whole = true
    local values = call('HMGET', record.key, unpack(MORE))
    for i = 1, #MORE do
      if record[MORE[i]] == nil then record[MORE[i]] = values[i] end
    end
  end
  return record
end

-- What is known of a component from its beginning, in its field `facts`: as values one after the other they are far less to
-- write and to read than a field for each, or a list. `parts` counts the components of its run when there are several; its
-- run may have inputs (`has_inputs`).
local function pack_facts(comp)
  return cmsgpack.pack(comp.run_id, comp.user_id, comp.plan, comp.nodes, comp.policy, comp.partition, comp.planned,
    comp.traceparent, comp.parts, comp.submitted_at, comp.node_type, comp.edition, comp.has_inputs)
end

local function unpack_facts(packed)
  local run_id, user_id, plan, nodes, policy, partition = cmsgpack.unpack(packed)
  return {run_id = run_id, user_id = user_id, plan = plan, nodes = nodes, policy = policy, partition = partition}
end

-- The record of a component, or false; one that is being purged is gone. `open` counts its nodes that are not terminal; it
-- is `early` when nodes may have ended before their signals came: 1, or of a rerun 'keep' while results are being taken
-- over, and 'kept' then; or one that was withheld, 'held' until it is 'freed' or 'unwanted'. What few have is read only of
-- those that are `eventful`.
local component
do
  local UNEVENTFUL = {}

  local function known(id, run, key, status, completed, sinks, eventful, few, run_id, user_id, plan, nodes, policy, partition,
    planned, traceparent, parts, submitted_at, node_type, edition, has_inputs)
    local failed, terminated, skipped = tonumber(few[1] or 0), tonumber(few[2] or 0), tonumber(few[3] or 0)
    completed = completed and tonumber(completed) or 0
    know_edition(plan, edition)
    return {id = id, run = run, key = key, changes = {nil, nil, nil, nil}, n = 0, status = status, was = status, completed = completed,
      failed = failed, terminated = terminated, skipped = skipped, sinks = sinks and tonumber(sinks) or 0,
      open = nodes - completed - failed - terminated - skipped, eventful = eventful, stop = few[4], early = few[5],
      maps = few[6], watched = few[7], run_id = run_id, user_id = user_id, plan = plan, nodes = nodes, policy = policy,
      partition = partition, planned = planned, traceparent = traceparent, parts = parts, submitted_at = submitted_at,
      node_type = node_type, edition = edition, has_inputs = has_inputs, counted = nil}
  end

  function component(run, id)
    local key = base .. 'component:' .. run .. ':' .. id
    local comp = components[key]
    if comp == nil then
      local v = call('HMGET', key, 'status', 'facts', 'completed', 'sinks', 'eventful')
      comp = false
      if v[1] and v[1] ~= 'purged' then
        local few = v[5] and call('HMGET', key, 'failed', 'terminated', 'skipped', 'stop', 'early', 'maps', 'watched') or UNEVENTFUL
        comp = known(id, run, key, v[1], v[3], v[4], v[5], few, cmsgpack.unpack(v[2]))
      end
      components[key] = comp
    end
    return comp
  end
end

local function component_of(record) return record.comp or component(run_of(record.id), record.component_id) end

-- Changes are kept as the arguments of one HSET; the last of several for a field counts. The status, the counts of a
-- component, the signals and the facts of a node task are written from the record itself.
-- `note` is for what is not read again.
local function note(record, field, value)
  local n, changes = record.n, record.changes
  changes[n + 1] = field
  changes[n + 2] = value
  record.n = n + 2
end

local function set(record, field, value)
  record[field] = value
  note(record, field, value)
end

-- Sets what stands in the `facts` of a node task.
local function restate(record, field, value)
  record[field] = value
  record.restated = true
end

local function write_task(record)
  local changes, n = record.changes, record.n
  if record.signalled then
    changes[n + 1], changes[n + 2], changes[n + 3], changes[n + 4] = 'waiting', record.waiting, 'live', record.live
    n = n + 4
  end
  if record.restated then
    changes[n + 1], changes[n + 2] = 'facts', pack_task(record)
    n = n + 2
  end
  changes[n + 1], changes[n + 2] = 'status', record.status
  n = n + 2
  record.n = n
  if n <= 1000 then return call('HSET', record.key, unpack(changes, 1, n)) end
  for first = 1, n, 1000 do call('HSET', record.key, unpack(changes, first, math.min(first + 999, n))) end
end

-- Sets what few components have; see `component`.
local function set_eventful(comp, field, value)
  comp.eventful = true
  set(comp, field, value)
end

local function write_component(comp)
  if comp.counted then
    note(comp, 'completed', comp.completed)
    if comp.sinks > 0 then note(comp, 'sinks', comp.sinks) end
    if comp.failed > 0 then note(comp, 'failed', comp.failed) end
    if comp.terminated > 0 then note(comp, 'terminated', comp.terminated) end
    if comp.skipped > 0 then note(comp, 'skipped', comp.skipped) end
  end
  if comp.eventful == true then note(comp, 'eventful', 1) end
  if comp.status ~= comp.was then note(comp, 'status', comp.status) end
  if comp.n > 0 then call('HSET', comp.key, unpack(comp.changes, 1, comp.n)) end
end

-- A node of a plan: id, type, run_if, inputs and outputs (how many edges), into (places of the edges, absent when there
-- are more than a piece of them) and fields (that their values stand in: `input` of a single one, else `in:<edge>`), out (the
-- first piece of {handle, target, field of the target}), start, close (ms).
local function node(plan, index)
  local known = plans[plan]
  if not known then known = {} plans[plan] = known end
  local entry = known[index]
  if not entry then
    entry = cmsgpack.unpack(call('HGET', base .. 'plan:' .. plan, 'n:' .. index))
    known[index], known_nodes = entry, known_nodes + 1
  end
  return entry
end

-- The field that the value of an edge into a node stands in.
local function field_of(entry, edge) return entry.inputs == 1 and entry.fields[1] or 'in:' .. edge end

-- The items of a list of a plan (`ids`, `entries`, `out:<place>`) from place `at` (from 0) on: the piece they are in, and
-- what to take from the place of each to find it there.
local function piece_of(plan, list, at)
  local number = math.floor(at / PIECE)
  local field = list .. ':' .. number
  local name = plan .. field
  local piece = pieces[name]
  if not piece then
    piece = cmsgpack.unpack(call('HGET', base .. 'plan:' .. plan, field))
    pieces[name] = piece
  end
  return piece, number * PIECE - 1
end

local function in_pieces(command, key, items)
  local n = #items
  if n > 0 and n <= 1000 then return call(command, key, unpack(items)) end
  for first = 1, n, 1000 do call(command, key, unpack(items, first, math.min(first + 999, n))) end
end

-- Members of sorted sets, taken out and put in at the end, in this order.
local added, removed = {}, {}

local function put(key, member, score)
  local items = added[key]
  if not items then items = {} added[key] = items end
  local n = #items
  items[n + 1] = score
  items[n + 2] = member
end

-- Takes a member out of a list of scores and members; returns whether it was there.
local function withdraw(items, member)
  local found = false
  for at = items and #items or 0, 2, -2 do
    if items[at] == member then
      table.remove(items, at)
      table.remove(items, at - 1)
      found = true
    end
  end
  return found
end

local function take(key, member)
  local items = removed[key]
  if not items then items = {} removed[key] = items end
  items[#items + 1] = member
end

-- Leases that end and begin, written likewise: they stand in `inflight` and in the list of their worker.
local leasing = {}
do
  local ended, begun
  fresh(function() ended, begun = {}, {} end)

  function leasing.begin(record, till)
    local items = begun[record.worker_id]
    if not items then items = {} begun[record.worker_id] = items end
    local n = #items
    items[n + 1] = till
    items[n + 2] = record.id
  end

  -- What this script began, or put off to the end of a stop's grace, is over as well.
  function leasing.over(record)
    withdraw(begun[record.worker_id], record.id)
    withdraw(added.inflight, record.id)
    local ids = ended[record.worker_id]
    if not ids then ids = {} ended[record.worker_id] = ids end
    ids[#ids + 1] = record.id
  end

  local function write(command, by_worker)
    local worker_id, all = next(by_worker)
    if not worker_id then return end
    if next(by_worker, worker_id) then
      all = {}
      for _, items in pairs(by_worker) do
        for i = 1, #items do all[#all + 1] = items[i] end
      end
    end
    in_pieces(command, base .. 'inflight', all)
    for worker, items in pairs(by_worker) do in_pieces(command, base .. 'worker_tasks:' .. worker, items) end
  end

  function leasing.write()
    write('ZREM', ended)
    write('ZADD', begun)
  end
end

local function write_sets()
  for key, items in pairs(removed) do in_pieces('ZREM', base .. key, items) end
  leasing.write()
  for key, items in pairs(added) do in_pieces('ZADD', base .. key, items) end
end

-- Keys of what has ended, to get their time to live once all is written.
local expiring = {}
-- What is to be done before records are written; see fan_out.
local before_writing

-- How many node tasks ended here, by status, and how many failed by code of the error, as `failed:<code>`.
local totals = {}
fresh(function()
  added, totals = {}, {}
  if next(removed) then removed = {} end
  if #expiring > 0 then expiring = {} end
end)

local function count_failure(code)
  local CODES = {NODE_ERROR = true, INVALID_OUTPUT = true, OUTPUT_TOO_LARGE = true, INPUT_TOO_LARGE = true, INPUT_MISSING = true,
    SECRET_MISSING = true, START_TIMEOUT = true, TIMEOUT = true, HEARTBEAT_TIMEOUT = true, TOTAL_TIMEOUT = true,
    WORKER_LOST = true, PROCESS_DIED = true, UNKNOWN_NODE_TYPE = true, RETRY_BUDGET_EXHAUSTED = true, ITEMS_FAILED = true,
    WAIT_TIMEOUT = true, SUB_FLOW_FAILED = true}
  local name = 'failed:' .. (CODES[code] and code or 'OTHER')
  totals[name] = (totals[name] or 0) + 1
end

local function write_all()
  before_writing()
  for name, count in pairs(totals) do call('HINCRBY', base .. 'queue:stats', name, count) end
  for _, record in pairs(records) do if record and (record.n > 0 or record.signalled or record.restated) then write_task(record) end end
  for _, comp in pairs(components) do if comp and (comp.n > 0 or comp.counted) then write_component(comp) end end
  write_sets()
  if #expiring > 0 then
    local retention = string.format('%.0f', limits.retention)
    for i = 1, #expiring do call('PEXPIRE', expiring[i], retention) end
  end
end
