--!include packing
-- Records of node tasks and components; each is read once and written once per script.
-- Uses args: base (key prefix with its tag), now (ms, 0 for the server's time), limits (JSON).
local call = redis.call
local base, limits, time, stamp, budget, effects
local records, components = {}, {}
-- What this script knows of each run, and changes about it.
local sheets = {}
-- Kept from script to script: the limits with their text, and nodes by plan and place, one edition of each plan.
local plans, editions, known_nodes = {}, {}, 0
do
  local MAX_KNOWN, limits_text = 5000, nil
  fresh(function()
    if not limits or args.limits ~= limits_text then limits, limits_text = cjson.decode(args.limits or '{}'), args.limits end
    base, time = args.base, args.now and now(args.now)
    stamp = time and string.format('%.0f', time)
    budget = limits.records
    effects = {assignments = {}, results = {}, todo = 0}
    records, components, sheets = {}, {}, {}
    if known_nodes > MAX_KNOWN then plans, editions, known_nodes = {}, {}, 0 end
  end)
end

local function use_edition(plan, edition)
  if editions[plan] ~= edition then plans[plan], editions[plan] = nil, edition end
end

-- Lists of a plan (ids, entries, edges out of a node) are stored in pieces of this many, as redis_plans.py writes them.
local PIECE = 500
-- Small numbers as text, kept from script to script: Lua takes longer to write a number than to join two texts.
local digits = setmetatable({}, {__index = function(known, number)
  known[number] = string.format('%d', number)
  return known[number]
end})
local TERMINAL = {completed = true, failed = true, terminated = true, skipped = true}
-- Formats a length of time for people: `5 min` for 300000.
local function duration_text(ms)
  for _, unit in ipairs({{3600000, 'h'}, {60000, 'min'}, {1000, 's'}}) do
    if ms > 0 and ms % unit[1] == 0 then return string.format('%.0f %s', ms / unit[1], unit[2]) end
  end
  return string.format('%.0f ms', ms)
end

-- The id of a node task, which is its run's id when the run is an ad-hoc task; and the run in such an id.
local function task_of(run, node_id) return node_id == '' and run or run .. ':' .. node_id end
local function run_of(task)
  return string.match(task, '^([^:]+:[^:]+:[^:]+):') or string.match(task, '^task:[^:]+$') or (string.match(task, '^(.+):[^:]+$'))
end

-- One hash holds everything about a run: its node tasks in fields `<node>:<name>` (`<node>:<item>:<name>` for an item
-- of a mapped node), its components in fields `<component>/<name>`. A record or component has the hash's `key`, `at`,
-- the beginning of its fields, and `sheet`, which holds the `n` names and values to be written to the hash, the values
-- read of the `first` component, and the components by `at`.
local function sheet_of(run, key)
  local sheet = sheets[run]
  if not sheet then
    sheet = {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, key = key, n = 0, first = nil}
    sheets[run] = sheet
  end
  return sheet
end

local function stored(record, field) return call('HGET', record.key, record.at .. field) end

-- Returns several fields at once, in order.
local function stored_all(record, fields)
  local names, at = {}, record.at
  for i = 1, #fields do names[i] = at .. fields[i] end
  return call('HMGET', record.key, unpack(names))
end

-- Returns what the fields of a node task begin with.
local function place_of(id, run) return string.sub(id, #run + 2) .. ':' end

-- `task` returns the record of a node task, or false. `also` says what else to read in the same call: 'input' (the only
-- input of a node that has one) or 'signals' (`waiting`, false when none has come, and `live`). The first component of
-- the run, to which most node tasks belong, is read along. Here and in `create`, the usual fields of a record are named
-- up front, even as nil: growing the table later costs more.
local task, component
do
  local function new_task(id, run, key, at, sheet, status, component_id, index, registered_at, ready_at, attempt, nonce, worker_id, started_at,
    close_at, edge, stopping, slots, ended)
    return {id = id, run = run, key = key, at = at, sheet = sheet, noted = nil, status = status,
      stop = stopping and call('HGET', key, at .. 'stop'), waiting = nil, live = nil, slots = slots, component_id = component_id,
      index = index, registered_at = registered_at, ready_at = ready_at, attempt = attempt, nonce = nonce, worker_id = worker_id,
      started_at = started_at, close_at = close_at, edge = edge, comp = nil, entry = nil, outputs = nil, ended = ended}
  end

  local function read(id, also)
    local run = run_of(id)
    if not run then return false end
    local key, at, v, extra = base .. 'run:' .. run, place_of(id, run), nil, 2
    local state, sheet = at .. 'state', sheet_of(run, key)
    if not sheet.first then
      if not also then
        v = call('HMGET', key, state, '0/facts', '0/state')
      elseif also == 'input' then
        v = call('HMGET', key, state, '0/facts', '0/state', at .. 'input')
      else
        v = call('HMGET', key, state, '0/facts', '0/state', at .. 'waiting', at .. 'live')
      end
      sheet.first, extra = v, 4
    elseif not also then
      v = call('HMGET', key, state)
    elseif also == 'input' then
      v = call('HMGET', key, state, at .. 'input')
    else
      v = call('HMGET', key, state, at .. 'waiting', at .. 'live')
    end
    local record = v[1] and new_task(id, run, key, at, sheet, cmsgpack.unpack(v[1]))
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

  -- `component` returns the record of a component, or false; a component that is being purged counts as gone. `open`
  -- counts its nodes that are not terminal. `early` is set when nodes may have ended before their signals came: 1; in a
  -- rerun, 'keep' while results are being taken over and 'kept' afterwards; for a withheld component, 'held' until it
  -- is 'freed' or 'unwanted'. Rarely used fields are read only if the component is `eventful`.
  local UNEVENTFUL = {0, 0, 0}

  -- `few` holds the values of RARE.
  local RARE = {'failed', 'terminated', 'skipped', 'stop', 'early', 'maps', 'watched'}

  local function new_component(id, at, run, sheet, few, status, completed, sinks, eventful, finished_at, run_id, user_id, plan, nodes, policy,
    partition, planned, traceparent, parts, _, _, edition, has_inputs)
    use_edition(plan, edition)
    return {id = id, run = run, key = sheet.key, at = at, sheet = sheet, status = status, completed = completed,
      failed = few[1], terminated = few[2], skipped = few[3], sinks = sinks, open = nodes - completed - few[1] - few[2] - few[3],
      eventful = eventful, stop = few[4], early = few[5], maps = few[6], watched = few[7], run_id = run_id, user_id = user_id,
      plan = plan, nodes = nodes, policy = policy, partition = partition, planned = planned, traceparent = traceparent, parts = parts,
      has_inputs = has_inputs, finished_at = finished_at, moved = nil, sink = nil, outputs = nil}
  end

  local function component_from(id, at, run, sheet, facts, state)
    local status, completed, sinks, eventful, finished_at = packing.state_of(state)
    if not facts or status == 'purged' then return false end
    local few = UNEVENTFUL
    if eventful then
      few = stored_all({key = sheet.key, at = at}, RARE)
      for i = 1, 3 do few[i] = tonumber(few[i] or 0) end
    end
    return new_component(id, at, run, sheet, few, status, completed, sinks, eventful, finished_at, cmsgpack.unpack(facts))
  end

  function component(run, id)
    local sheet = sheets[run] or sheet_of(run, base .. 'run:' .. run)
    local at = id .. '/'
    local comp = sheet[at]
    if comp == nil then
      local first = id == '0' and sheet.first
      if first then
        comp = component_from(id, at, run, sheet, first[2], first[3])
      else
        comp = component_from(id, at, run, sheet, unpack(call('HMGET', sheet.key, at .. 'facts', at .. 'state')))
      end
      sheet[at] = comp
      if comp then components[#components + 1] = comp end
    end
    return comp
  end
end

-- Reads the fields of a node task that not every change needs, and returns the record.
local function read_rest(record)
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

-- Returns the ids of a run's components, none when there is no such run.
local function component_ids(run)
  local packed = call('HGET', base .. 'run:' .. run, 'components')
  return packed and cmsgpack.unpack(packed) or {}
end

-- Whether an attempt, named by its nonce, holds its lease.
local function holds_lease(record, nonce) return record and record.status == 'running' and record.nonce == nonce end

local function component_of(record) return record.comp or component(record.run, record.component_id) end

-- `flow_runs:<flow>` holds the latest run `<cycle>:<run>` of each cycle by number. Open runs score OPEN more, above all
-- others, until the cleaner has seen that they have ended.
local flow_runs = {EACH = 1024, OPEN = 2 ^ 46}

-- Returns the flow of a run, and the name of the run within it.
function flow_runs.names(run) return string.match(run, '^([^:]+):(.+)$') end

function flow_runs.number(name)
  local cycle, run = string.match(name, '^(%d+):(%d+)$')
  return cycle * flow_runs.EACH + run
end

-- Returns when a component of a run began.
function flow_runs.begun_at(run, id)
  local PLACE = 10
  return (select(PLACE, cmsgpack.unpack(call('HGET', base .. 'run:' .. run, id .. '/facts'))))
end

-- Changes are collected as the arguments of one HSET for each run; the last value of a field counts. The states of
-- node tasks and components, signals, and rarer counts are written from the records themselves.
local function write(record, field, value)
  local sheet = record.sheet
  local n = sheet.n
  sheet[n + 1] = record.at .. field
  sheet[n + 2] = value
  sheet.n = n + 2
end

-- For node tasks only: one without a noted change is not written. `note` is for fields that are not read again.
local function note(record, field, value)
  record.noted = true
  write(record, field, value)
end

local function set(record, field, value)
  record[field] = value
  note(record, field, value)
end

-- Sets a value that is part of the `state` of a node task.
local function set_state(record, field, value)
  record[field] = value
  record.noted = true
end

-- Sets a field that few components have; see `component`.
local function set_eventful(comp, field, value)
  comp.eventful, comp.moved, comp[field] = true, true, value
  write(comp, field, value)
end

-- Returns a node of a plan: id, type, run_if, inputs and outputs (how many edges), into (places of the edges, absent
-- when there are more than a piece of them) and fields (that hold their values: `input` for a single edge, else
-- `in:<edge>`), out (the first piece of {handle, target, field of the target}), start, close (ms).
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

-- Returns the field that holds the value of an edge into a node.
local function field_of(entry, edge) return entry.inputs == 1 and entry.fields[1] or 'in:' .. edge end

-- Returns the piece of a plan's list (`ids`, `entries`, `out:<place>`) that holds place `at` (counted from 0), and the
-- number to subtract from a place to find its item in the piece.
local piece_of
do
  local pieces = {}
  fresh(function() if next(pieces) then pieces = {} end end)

  function piece_of(plan, list, at)
    local number = math.floor(at / PIECE)
    local field = list .. ':' .. digits[number]
    local name = plan .. field
    local piece = pieces[name]
    if not piece then
      piece = cmsgpack.unpack(call('HGET', base .. 'plan:' .. plan, field))
      pieces[name] = piece
    end
    return piece, number * PIECE - 1
  end
end

local function in_pieces(command, key, items)
  local n = #items
  if n > 0 and n <= 1000 then return call(command, key, unpack(items)) end
  for first = 1, n, 1000 do call(command, key, unpack(items, first, math.min(first + 999, n))) end
end

-- Members to remove from sorted sets and to add to them at the end of the script, in this order.
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

local function remove(key, member)
  local items = removed[key]
  if not items then items = {} removed[key] = items end
  items[#items + 1] = member
end

-- Leases that end and begin, written in the same way: each is in `inflight` and in the list of its worker.
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

  -- Ends a lease, even one that this script has begun or has moved to the end of a stop's grace.
  function leasing.finish(record)
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

-- Keys of ended runs, which get their time to live once everything is written.
local expiring = {}
-- Called before records are written; see fan_out.
local before_writing

-- How many node tasks ended in this script, by status, and how many failed, by `failed:<code>` of the error.
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
  local function write_task(record)
    if record.signalled then
      write(record, 'waiting', record.waiting)
      write(record, 'live', record.live)
    end
    write(record, 'state', packing.task(record))
  end

  local function write_component(comp)
    if not comp.moved then return end
    write(comp, 'state', packing.state(comp))
    if comp.failed > 0 then write(comp, 'failed', comp.failed) end
    if comp.terminated > 0 then write(comp, 'terminated', comp.terminated) end
    if comp.skipped > 0 then write(comp, 'skipped', comp.skipped) end
  end

  local function write_sheet(sheet)
    local n = sheet.n
    if n > 0 and n <= 1000 then return call('HSET', sheet.key, unpack(sheet, 1, n)) end
    for first = 1, n, 1000 do call('HSET', sheet.key, unpack(sheet, first, math.min(first + 999, n))) end
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
      if record and (record.noted or record.signalled) then write_task(record) end
    end
    for i = 1, #components do write_component(components[i]) end
    for _, sheet in pairs(sheets) do write_sheet(sheet) end
    write_sets()
    if #expiring > 0 then
      local retention = string.format('%.0f', limits.retention)
      for i = 1, #expiring do call('PEXPIRE', expiring[i], retention) end
    end
  end
end
