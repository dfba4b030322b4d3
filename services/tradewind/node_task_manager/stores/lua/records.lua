-- Records of node tasks and components, read once and written once per script.
-- Uses args: base (key prefix with its tag), now (ms, 0 for the server's time), limits (JSON).
local call = redis.call
local base, limits, time, stamp, budget, effects
local records, components, pieces = {}, {}, {}
-- What this script changes of each run.
local sheets = {}
-- What many runs use: limits by their text, and nodes by plan and place, each plan of one edition.
local limits_text, plans, editions, known_nodes = nil, {}, {}, 0

fresh(function()
  local MOST_KNOWN = 5000
  if not limits or args.limits ~= limits_text then limits, limits_text = cjson.decode(args.limits or '{}'), args.limits end
  base, time = args.base, args.now and now(args.now)
  stamp = time and string.format('%.0f', time)
  budget = limits.records
  effects = {assignments = {}, results = {}, todo = 0}
  records, components, sheets = {}, {}, {}
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
-- A length of time as people write it: `5 min` for 300000.
local function lasting(ms)
  for _, unit in ipairs({{3600000, 'h'}, {60000, 'min'}, {1000, 's'}}) do
    if ms > 0 and ms % unit[1] == 0 then return string.format('%.0f %s', ms / unit[1], unit[2]) end
  end
  return string.format('%.0f ms', ms)
end

local function task_of(run, node_id) return node_id == '' and run or run .. ':' .. node_id end
local function run_of(task)
  return string.match(task, '^([^:]+:[^:]+:[^:]+):') or string.match(task, '^task:[^:]+$') or (string.match(task, '^(.+):[^:]+$'))
end

-- All there is of a run stands in one hash: what its node tasks have in fields `<node>:<name>` (`<node>:<item>:<name>` of an item
-- of a mapped node), its components in `<component>/<name>`. A record or component names the hash as `key`, what its fields begin
-- with as `at`, and the `sheet` of what is to be written there.
local function sheet_of(run, key)
  local sheet = sheets[run]
  if not sheet then
    sheet = {key = key, n = 0, changes = {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil}}
    sheets[run] = sheet
  end
  return sheet
end

local function stored(record, field) return call('HGET', record.key, record.at .. field) end

-- Several fields at once, in their order.
local function stored_all(record, fields)
  local names, at = {}, record.at
  for i = 1, #fields do names[i] = at .. fields[i] end
  return call('HMGET', record.key, unpack(names))
end

-- What stands before the name of a field of a node task.
local function place_of(id, run) return string.sub(id, #run + 2) .. ':' end

-- The record of a node task, or false. What else it is looked at for is read along: `input` (its only one, if it has but one) or
-- `signals` (`waiting`, false when none has come, and `live`); and the first component of its run, which most are of.
-- Here and in `create` what most records come to hold is named at once, if as nil: to make room for it later costs more.
local task, component
do
  -- What was read of first components, by the run.
  local firsts = {}
  fresh(function() if next(firsts) then firsts = {} end end)

  local function known_task(id, run, key, at, status, stop, slots, component_id, index, registered_at, ready_at, attempt, nonce,
    worker_id, started_at, close_at, edge)
    return {id = id, run = run, key = key, at = at, sheet = sheet_of(run, key), noted = nil, status = status, stop = stop,
      waiting = nil, live = nil, slots = slots, component_id = component_id, index = index,
      registered_at = registered_at, ready_at = ready_at, attempt = attempt, nonce = nonce, worker_id = worker_id,
      started_at = started_at, close_at = close_at, edge = edge, comp = nil, entry = nil, outputs = nil, ended = nil, restated = nil}
  end

  local function read(id, also)
    local run = run_of(id)
    if not run then return false end
    local key, at, v, extra = base .. 'run:' .. run, place_of(id, run), nil, 5
    local status, facts, stop, slots = at .. 'status', at .. 'facts', at .. 'stop', at .. 'slots'
    if not firsts[run] then
      if not also then
        v = call('HMGET', key, status, facts, stop, slots, '0/status', '0/facts', '0/completed', '0/sinks', '0/eventful')
      elseif also == 'input' then
        v = call('HMGET', key, status, facts, stop, slots, '0/status', '0/facts', '0/completed', '0/sinks', '0/eventful', at .. 'input')
      else
        v = call('HMGET', key, status, facts, stop, slots, '0/status', '0/facts', '0/completed', '0/sinks', '0/eventful',
          at .. 'waiting', at .. 'live')
      end
      firsts[run], extra = v, 10
    elseif not also then
      v = call('HMGET', key, status, facts, stop, slots)
    elseif also == 'input' then
      v = call('HMGET', key, status, facts, stop, slots, at .. 'input')
    else
      v = call('HMGET', key, status, facts, stop, slots, at .. 'waiting', at .. 'live')
    end
    local record = v[1] and known_task(id, run, key, at, v[1], v[3], v[4], cmsgpack.unpack(v[2]))
    if record and also == 'input' then
      record.input = v[extra]
    elseif record and also then
      record.waiting, record.live = tonumber(v[extra]) or false, tonumber(v[extra + 1])
    end
    records[id] = record
    return record
  end

  function task(id, also)
    local record = records[id]
    if record == nil then return read(id, also) end
    if also == 'signals' and record and record.waiting == nil then
      local v = stored_all(record, {'waiting', 'live'})
      record.waiting, record.live = tonumber(v[1]) or false, tonumber(v[2])
    end
    return record
  end

  -- The record of a component, or false; one that is being purged is gone. `open` counts its nodes that are not terminal; it
  -- is `early` when nodes may have ended before their signals came: 1, or of a rerun 'keep' while results are being taken
  -- over, and 'kept' then; or one that was withheld, 'held' until it is 'freed' or 'unwanted'. What few have is read only of
  -- those that are `eventful`.
  local UNEVENTFUL = {}

  local function known_component(id, run, key, status, completed, sinks, eventful, few, run_id, user_id, plan, nodes, policy, partition,
    planned, traceparent, parts, _, _, edition, has_inputs)
    local failed, terminated, skipped = tonumber(few[1] or 0), tonumber(few[2] or 0), tonumber(few[3] or 0)
    completed = completed and tonumber(completed) or 0
    know_edition(plan, edition)
    return {id = id, run = run, key = key, at = id .. '/', sheet = sheet_of(run, key), status = status, completed = completed,
      failed = failed, terminated = terminated, skipped = skipped, sinks = sinks and tonumber(sinks) or 0,
      open = nodes - completed - failed - terminated - skipped, eventful = eventful, stop = few[4], early = few[5],
      maps = few[6], watched = few[7], run_id = run_id, user_id = user_id, plan = plan, nodes = nodes, policy = policy,
      partition = partition, planned = planned, traceparent = traceparent, parts = parts, has_inputs = has_inputs, counted = nil,
      sink = nil, outputs = nil}
  end

  -- From what was read of it: its status and the fields that follow, from a place on.
  local function made(id, run, v, from)
    local status = v[from]
    if not status or status == 'purged' then return false end
    local key, eventful, few = base .. 'run:' .. run, v[from + 4], UNEVENTFUL
    if eventful then
      local at = id .. '/'
      few = call('HMGET', key, at .. 'failed', at .. 'terminated', at .. 'skipped', at .. 'stop', at .. 'early', at .. 'maps',
        at .. 'watched')
    end
    return known_component(id, run, key, status, v[from + 2], v[from + 3], eventful, few, cmsgpack.unpack(v[from + 1]))
  end

  function component(run, id)
    local name = run .. '/' .. id
    local comp = components[name]
    if comp == nil then
      local first = id == '0' and firsts[run]
      if first then
        comp = made(id, run, first, 5)
      else
        local at = id .. '/'
        comp = made(id, run, call('HMGET', base .. 'run:' .. run, at .. 'status', at .. 'facts', at .. 'completed', at .. 'sinks',
          at .. 'eventful'), 1)
      end
      components[name] = comp
    end
    return comp
  end
end

-- What every change needs of a node task is read at once, the rest by this.
local function more(record)
  if not record.whole then
    local MORE = {'lost', 'dead', 'failures', 'retry_at', 'settled', 'total_at', 'beat', 'beat_by',
      'history', 'postponed', 'resumed', 'blocked'}
    record.whole = true
    local values = stored_all(record, MORE)
    for i = 1, #MORE do
      if record[MORE[i]] == nil then record[MORE[i]] = values[i] end
    end
  end
  return record
end

-- What is known of a component from its beginning, in its field `facts`: as values one after the other they are far less to
-- write and to read than a field for each, or a list. `parts` counts the components of its run when there are several; its
-- run may have inputs (`has_inputs`).
local function pack_facts(comp, node_type, edition)
  return cmsgpack.pack(comp.run_id, comp.user_id, comp.plan, comp.nodes, comp.policy, comp.partition, comp.planned,
    comp.traceparent, comp.parts, time, node_type, edition, comp.has_inputs)
end

local function unpack_facts(packed)
  local run_id, user_id, plan, nodes, policy, partition = cmsgpack.unpack(packed)
  return {run_id = run_id, user_id = user_id, plan = plan, nodes = nodes, policy = policy, partition = partition}
end

local function component_of(record) return record.comp or component(record.run, record.component_id) end

-- `flow_runs:<flow>` holds of each cycle the latest run, `<cycle>:<run>`, by number; above all others those that are open, until
-- they have been looked at after their end.
local flow_runs = {EACH = 1024, OPEN = 2 ^ 46}

-- The flow of a run, and what the run is called there.
function flow_runs.names(run) return string.match(run, '^([^:]+):(.+)$') end

function flow_runs.number(name)
  local cycle, run = string.match(name, '^(%d+):(%d+)$')
  return cycle * flow_runs.EACH + run
end

-- Changes are kept as the arguments of one HSET for each run; the last of several for a field counts. The status, the counts of a
-- component, the signals and the facts of a node task are written from the record itself.
local function write(record, field, value)
  local sheet = record.sheet
  local n, changes = sheet.n, sheet.changes
  changes[n + 1] = record.at .. field
  changes[n + 2] = value
  sheet.n = n + 2
end

-- Of node tasks alone, of which one that is not noted is not written; `note` is for what is not read again.
local function note(record, field, value)
  record.noted = true
  write(record, field, value)
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

-- Sets what few components have; see `component`.
local function set_eventful(comp, field, value)
  comp.eventful, comp[field] = true, value
  write(comp, field, value)
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

-- Keys of runs that have ended, to get their time to live once all is written.
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
    WORKER_LOST = true, PROCESS_DIED = true, UNKNOWN_NODE_TYPE = true, UNKNOWN_HANDLE = true, RETRY_BUDGET_EXHAUSTED = true, ITEMS_FAILED = true,
    WAIT_TIMEOUT = true, SUB_FLOW_FAILED = true}
  local name = 'failed:' .. (CODES[code] and code or 'OTHER')
  totals[name] = (totals[name] or 0) + 1
end

local write_all
do
  -- What all node tasks come to have, in their field `facts`: as values one after the other they are far less to write and to
  -- read than a field for each.
  local function pack_task(record)
    return cmsgpack.pack(record.component_id, record.index, record.registered_at, record.ready_at or nil, record.attempt,
      record.nonce or nil, record.worker_id or nil, record.started_at or nil, record.close_at, record.edge)
  end

  local function write_task(record)
    if record.signalled then
      write(record, 'waiting', record.waiting)
      write(record, 'live', record.live)
    end
    if record.restated then write(record, 'facts', pack_task(record)) end
    write(record, 'status', record.status)
  end

  local function write_component(comp)
    if comp.counted then
      write(comp, 'completed', comp.completed)
      if comp.sinks > 0 then write(comp, 'sinks', comp.sinks) end
      if comp.failed > 0 then write(comp, 'failed', comp.failed) end
      if comp.terminated > 0 then write(comp, 'terminated', comp.terminated) end
      if comp.skipped > 0 then write(comp, 'skipped', comp.skipped) end
    end
    if comp.eventful == true then write(comp, 'eventful', 1) end
  end

  local function write_sheet(sheet)
    local n = sheet.n
    if n > 0 and n <= 1000 then return call('HSET', sheet.key, unpack(sheet.changes, 1, n)) end
    for first = 1, n, 1000 do call('HSET', sheet.key, unpack(sheet.changes, first, math.min(first + 999, n))) end
  end

  local function write_sets()
    for key, items in pairs(removed) do in_pieces('ZREM', base .. key, items) end
    leasing.write()
    for key, items in pairs(added) do in_pieces('ZADD', base .. key, items) end
  end

  function write_all()
    before_writing()
    for name, count in pairs(totals) do call('HINCRBY', base .. 'queue:stats', name, count) end
    for _, record in pairs(records) do
      if record and (record.noted or record.signalled or record.restated) then write_task(record) end
    end
    for _, comp in pairs(components) do if comp then write_component(comp) end end
    for _, sheet in pairs(sheets) do write_sheet(sheet) end
    write_sets()
    if #expiring > 0 then
      local retention = string.format('%.0f', limits.retention)
      for i = 1, #expiring do call('PEXPIRE', expiring[i], retention) end
    end
  end
end
