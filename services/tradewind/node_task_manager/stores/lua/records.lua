--!include packing
--!include plans
--!include leasing
--!include user_runs
-- Records of node tasks and components; each is read once and written once per script.
local records, components = {}, {}
-- What this script knows of each run, and changes about it.
local sheets = {}
-- Keys of ended runs, which get their time to live once everything is written.
local expiring = {}
-- How many node tasks ended in this script, by status, and how many failed, by `failed:<code>` of the error.
local totals = {}
-- Called before records are written; see fan_out.
local before_writing
fresh(function()
  records, components, sheets, totals = {}, {}, {}, {}
  if #expiring > 0 then expiring = {} end
end)

local TERMINAL = {completed = true, failed = true, terminated = true, skipped = true}

-- The id of a node task, which is its run's id when the run is an ad-hoc task; and the run in such an id.
local function task_of(run, node_id) return node_id == '' and run or run .. ':' .. node_id end
local function run_of(task)
  return string.match(task, '^([^:]+:[^:]+:[^:]+):') or string.match(task, '^task:[^:]+$')
    or (string.match(task, '^(.+):[^:]+$'))
end

-- One hash holds everything about a run: its node tasks in fields `<node>:<name>` (`<node>:<item>:<name>` for an item
-- of a mapped node), its components in fields `<component>/<name>`. A record or component has the hash's `key`, `at`,
-- the beginning of its fields, and `sheet`, which holds the `n` names and values to be written to the hash, the values
-- read of the `first` component, and the components by `at`.
local function sheet_of(run, key)
  local sheet = sheets[run]
  if not sheet then
    sheet = {nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, nil, key = key, n = 0,
      first = nil}
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
  local function new_task(id, run, key, at, sheet, status, component_id, index, registered_at, ready_at, attempt,
    nonce, worker_id, started_at, close_at, edge, stopping, slots, ended)
    return {id = id, run = run, key = key, at = at, sheet = sheet, noted = nil, status = status,
      stop = stopping and call('HGET', key, at .. 'stop'), waiting = nil, live = nil, slots = slots,
      component_id = component_id, index = index, registered_at = registered_at, ready_at = ready_at,
      attempt = attempt, nonce = nonce, worker_id = worker_id, started_at = started_at, close_at = close_at,
      edge = edge, comp = nil, entry = nil, outputs = nil, ended = ended}
  end

  -- A key of another type in place of a run holds no node task.
  local function read(id, also)
    local run = run_of(id)
    if not run then return false end
    local key, at, v, extra = base .. 'run:' .. run, place_of(id, run), nil, 2
    local state, sheet = at .. 'state', sheet_of(run, key)
    if not sheet.first then
      if not also then
        v = redis.pcall('HMGET', key, state, '0/facts', '0/state')
      elseif also == 'input' then
        v = redis.pcall('HMGET', key, state, '0/facts', '0/state', at .. 'input')
      else
        v = redis.pcall('HMGET', key, state, '0/facts', '0/state', at .. 'waiting', at .. 'live')
      end
      sheet.first, extra = v, 4
    elseif not also then
      v = redis.pcall('HMGET', key, state)
    elseif also == 'input' then
      v = redis.pcall('HMGET', key, state, at .. 'input')
    else
      v = redis.pcall('HMGET', key, state, at .. 'waiting', at .. 'live')
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

  local function new_component(id, at, run, sheet, few, status, completed, sinks, eventful, finished_at, run_id,
    user_id, plan, nodes, policy, partition, planned, traceparent, parts, _, _, edition, has_inputs)
    use_edition(plan, edition)
    return {id = id, run = run, key = sheet.key, at = at, sheet = sheet, status = status, completed = completed,
      failed = few[1], terminated = few[2], skipped = few[3], sinks = sinks,
      open = nodes - completed - few[1] - few[2] - few[3], eventful = eventful, stop = few[4], early = few[5],
      maps = few[6], watched = few[7], run_id = run_id, user_id = user_id, plan = plan, nodes = nodes, policy = policy,
      partition = partition, planned = planned, traceparent = traceparent, parts = parts, has_inputs = has_inputs,
      finished_at = finished_at, moved = nil, sink = nil, outputs = nil}
  end

  local function component_from(id, at, run, sheet, facts, state)
    local status, completed, sinks, eventful, finished_at = packing.state_of(state)
    if not facts or status == 'purged' then return false end
    local few = UNEVENTFUL
    if eventful then
      few = stored_all({key = sheet.key, at = at}, RARE)
      for i = 1, 3 do few[i] = tonumber(few[i] or 0) end
    end
    return new_component(id, at, run, sheet, few, status, completed, sinks, eventful, finished_at,
      cmsgpack.unpack(facts))
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
        local fields = redis.pcall('HMGET', sheet.key, at .. 'facts', at .. 'state')
        comp = component_from(id, at, run, sheet, fields[1], fields[2])
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
      'history', 'postponed', 'resumed', 'blocked', 'judged'}
    record.whole = true
    local values = stored_all(record, MORE)
    for i = 1, #MORE do
      if record[MORE[i]] == nil then record[MORE[i]] = values[i] end
    end
  end
  return record
end

-- Returns a run's id and the ids of its components; nil and none when there is no such run. Most runs have only
-- component 0, whose facts have the run's id. Others have both in fields of their own.
local function known_run(run)
  local run_id, packed_ids, facts = unpack(redis.pcall('HMGET', base .. 'run:' .. run, 'run_id',
    'components', '0/facts'))
  if run_id then return run_id, cmsgpack.unpack(packed_ids) end
  if facts then return packing.facts_of(facts).run_id, {'0'} end
  return nil, {}
end

local function component_ids(run) return (select(2, known_run(run))) end

-- Whether an attempt, named by its nonce, holds its lease.
local function holds_lease(record, nonce) return record and record.status == 'running' and record.nonce == nonce end

local function component_of(record) return record.comp or component(record.run, record.component_id) end

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
    -- Whatever somebody has made of these counts, node tasks go on.
    for name, count in pairs(totals) do redis.pcall('HINCRBY', base .. 'queue:stats', name, count) end
    for _, record in pairs(records) do
      if record and (record.noted or record.signalled) then write_task(record) end
    end
    for i = 1, #components do write_component(components[i]) end
    -- Records come last: where an index of another type ends the script, they are as they were, and so can be found.
    write_sets()
    for _, sheet in pairs(sheets) do write_sheet(sheet) end
    if #expiring > 0 then
      local retention = string.format('%.0f', limits.retention_ms)
      for i = 1, #expiring do call('PEXPIRE', expiring[i], retention) end
    end
  end
end
