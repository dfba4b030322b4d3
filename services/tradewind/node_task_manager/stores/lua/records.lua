-- Records of node tasks and components, read once and written once per script.
-- Uses args: base (key prefix with its tag), now (ms, 0 for the server's time), limits (JSON).
local call = redis.call
local base, limits, time, stamp, budget, effects
local records, components, pieces
-- What many runs use: limits by their text, and nodes by plan and place, each plan of one edition.
local limits_text, plans, editions, known_nodes = nil, {}, {}, 0

fresh(function()
  local MOST_KNOWN = 5000
  if not limits or args.limits ~= limits_text then limits, limits_text = cjson.decode(args.limits or '{}'), args.limits end
  base, time = args.base, args.now and now(args.now)
  stamp = time and string.format('%.0f', time)
  budget = limits.records
  effects = {assignments = {}, terminations = {}, events = {}, ready_types = {}, stale_workers = {}, results = {}, todo = 0}
  records, components, pieces = {}, {}, {}
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

-- The record of a node task, or false. Numbers it lacks are nil, texts false.
-- Here and in `create` what most records come to hold is named at once, if as nil: to make room for it later costs more.
local function task(id)
  local record = records[id]
  if record == nil then
    local key = base .. 'node_tasks:' .. id
    local v = call('HMGET', key, 'status', 'component_id', 'index', 'attempt', 'nonce', 'worker_id', 'stop', 'waiting', 'live',
      'slots', 'blocked', 'ready_at')
    record = v[1] and {id = id, key = key, changes = {nil, nil, nil, nil, nil, nil, nil, nil}, n = 0, status = v[1], component_id = v[2], index = tonumber(v[3]),
      attempt = tonumber(v[4]), nonce = v[5], worker_id = v[6], stop = v[7], waiting = tonumber(v[8]), live = tonumber(v[9]), slots = v[10], blocked = v[11], ready_at = v[12]}
    records[id] = record
  end
  return record
end

-- What every change needs of a node task is read at once, the rest by this.
local function more(record)
  if not record.whole then
    local MORE = {'lost', 'started_at', 'close_at', 'dead', 'failures', 'retry_at', 'settled', 'total_at', 'beat', 'beat_by',
      'history', 'postponed', 'resumed'}
    record.whole = true
    local values = call('HMGET', record.key, unpack(MORE))
    for i = 1, #MORE do
      if record[MORE[i]] == nil then record[MORE[i]] = values[i] end
    end
  end
  return record
end

-- What is known of a component from its beginning, in its field `facts`: as values one after the other they are far less to
-- write and to read than a field for each, or a list. `parts` counts the components of its run when there are several.
local function pack_facts(comp)
  return cmsgpack.pack(comp.run_id, comp.user_id, comp.plan, comp.nodes, comp.policy, comp.partition, comp.planned,
    comp.traceparent, comp.parts, comp.submitted_at, comp.node_type, comp.edition)
end

local function unpack_facts(packed)
  local run_id, user_id, plan, nodes, policy, partition, planned, traceparent, parts, submitted_at, node_type, edition =
    cmsgpack.unpack(packed)
  return {run_id = run_id, user_id = user_id, plan = plan, nodes = nodes, policy = policy, partition = partition, planned = planned,
    traceparent = traceparent, parts = parts, submitted_at = submitted_at, node_type = node_type, edition = edition}
end

-- The record of a component, or false; one that is being purged is gone. `open` counts its nodes that are not terminal; it
-- is `early` when nodes may have ended before their signals came: 1, or of a rerun 'keep' while results are being taken
-- over, and 'kept' then; or one that was withheld, 'held' until it is 'freed' or 'unwanted'.
local function component(run, id)
  local key = base .. 'component:' .. run .. ':' .. id
  local comp = components[key]
  if comp == nil then
    local v = call('HMGET', key, 'status', 'facts', 'completed', 'failed', 'terminated', 'skipped', 'sinks', 'stop', 'early',
      'maps', 'watched')
    comp = v[1] and v[1] ~= 'purged' and unpack_facts(v[2])
    if comp then
      comp.id, comp.run, comp.key, comp.changes, comp.n, comp.status = id, run, key, {}, 0, v[1]
      comp.completed, comp.failed = v[3] and tonumber(v[3]) or 0, v[4] and tonumber(v[4]) or 0
      comp.terminated, comp.skipped = v[5] and tonumber(v[5]) or 0, v[6] and tonumber(v[6]) or 0
      comp.sinks, comp.stop, comp.early, comp.maps, comp.watched = v[7] and tonumber(v[7]) or 0, v[8], v[9], v[10], v[11]
      comp.open = comp.nodes - comp.completed - comp.failed - comp.terminated - comp.skipped
      know_edition(comp.plan, comp.edition)
    end
    components[key] = comp
  end
  return comp
end

local function component_of(record) return record.comp or component(run_of(record.id), record.component_id) end

-- Changes are kept as the arguments of one HSET; the last of several for a field counts. The status, the counts of a
-- component, the signals of a node task and what is known of one that was created here are written from the record itself.
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

local function write_changes(record)
  local key, changes, n = record.key, record.changes, record.n
  if n <= 1000 then return call('HSET', key, 'status', record.status, unpack(changes, 1, n)) end
  note(record, 'status', record.status)
  for first = 1, n + 2, 1000 do call('HSET', key, unpack(changes, first, math.min(first + 999, n + 2))) end
end

local function write_task(record)
  if record.signalled then
    note(record, 'waiting', record.waiting)
    note(record, 'live', record.live)
  end
  -- One that was created here and given to a worker at once is what most are.
  if record.begun and record.n <= 1000 then
    return call('HSET', record.key, 'component_id', record.component_id, 'index', record.index, 'registered_at', stamp,
      'ready_at', record.ready_at, 'attempt', record.attempt, 'nonce', record.nonce, 'worker_id', record.worker_id,
      'started_at', record.started_at, 'status', record.status, unpack(record.changes, 1, record.n))
  end
  if record.created then
    note(record, 'component_id', record.component_id)
    note(record, 'index', record.index)
    note(record, 'registered_at', stamp)
    if record.ready_at then note(record, 'ready_at', record.ready_at) end
  end
  write_changes(record)
end

local COUNTS = {'completed', 'failed', 'terminated', 'skipped', 'sinks'}

local function write_component(comp)
  if comp.counted then
    for i = 1, #COUNTS do
      if comp[COUNTS[i]] > 0 then note(comp, COUNTS[i], comp[COUNTS[i]]) end
    end
  end
  write_changes(comp)
end

-- A node of a plan: id, type, run_if, inputs and outputs (how many edges), into (places of the edges, absent when there
-- are more than a piece of them), out (the first piece of {handle, target, place}), start, close (ms).
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
local added, removed

local function put(key, member, score)
  local items = added[key]
  if not items then items = {} added[key] = items end
  local n = #items
  items[n + 1] = score
  items[n + 2] = member
end

local function take(key, member)
  local items = removed[key]
  if not items then items = {} removed[key] = items end
  items[#items + 1] = member
end

local function write_sets()
  for key, items in pairs(removed) do in_pieces('ZREM', base .. key, items) end
  for key, items in pairs(added) do in_pieces('ZADD', base .. key, items) end
end

-- Keys of what has ended, to get their time to live once all is written.
local expiring
-- What is to be done before records are written; see fan_out.
local before_writing

-- How many node tasks ended here, by status, and how many failed by code of the error, as `failed:<code>`.
local totals
fresh(function() added, removed, expiring, totals = {}, {}, {}, {} end)

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
  for _, record in pairs(records) do if record and (record.n > 0 or record.signalled or record.created) then write_task(record) end end
  for _, comp in pairs(components) do if comp and (comp.n > 0 or comp.counted) then write_component(comp) end end
  write_sets()
  for _, key in ipairs(expiring) do call('PEXPIRE', key, limits.retention) end
end
