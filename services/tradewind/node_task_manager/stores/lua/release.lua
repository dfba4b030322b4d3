--!include queues
--!include scheduler_events
--!include todo
-- What follows the end of a node task: signals, skips, the end of a component.
local finished = {}
fresh(function() if #finished > 0 then finished = {} end end)
-- Functions that stop node tasks and components; see stopping.
local stopping = {}

local function release_lease(record)
  slots.free(record)
  leasing.finish(record)
end

-- To be called when all nodes of a component have ended: it finishes with this script, and if it was the last open one
-- of its run, the run gets its time to live.
local function component_ended(comp)
  finished[#finished + 1] = comp
  if comp.parts and call('HINCRBY', comp.key, 'open', -1) > 0 then return end
  expiring[#expiring + 1] = comp.key
  if comp.partition == NO_PARTITION then
    user_runs.put(comp.user_id, comp.run, comp.submitted_at or flow_runs.begun_at(comp.run, comp.id))
    -- It leaves the list of its user when it expires.
    put('ended_runs', comp.user_id .. ':' .. comp.run, time + limits.retention_ms)
  else
    put('to_clean', 'run:' .. comp.run, time + limits.settle_ms)
  end
end

-- Notes the outputs of a node task, each a handle and its text.
local function emit(record, outputs)
  record.outputs = outputs
  for i = 1, #outputs do
    local output = outputs[i]
    note(record, 'out:' .. output[1], output[2])
  end
end

local finish
do
  -- Adds the outputs of a component's only sink to the component, to be sent along with the event if they are small.
  local function remember_sink_outputs(comp, entry, outputs)
    if not outputs then return end
    local size = 0
    for i = 1, #outputs do size = size + #outputs[i][2] end
    if size <= limits.answer_bytes then comp.sink, comp.outputs = entry.id, outputs end
  end

  -- Returns when a node task ends, and the handles that it emits.
  local function end_with(outputs)
    local ended = {stamp, nil}
    for i = 1, outputs and #outputs or 0 do ended[i + 1] = outputs[i][1] end
    return ended
  end

  -- Counts the end of a node task whose plan the store has lost: `settle` ends the rest of its component.
  local function count_without_plan(record, comp, status)
    if fan_out.is_item(record.id) then return end
    comp[status], comp.open, comp.moved, comp.eventful = comp[status] + 1, comp.open - 1, true, true
    if comp.open == 0 then component_ended(comp) end
  end

  -- The only way into a terminal status. A stopped component delivers nothing: the stop reaches every node.
  function finish(record, comp, status, reason)
    local entry = record.entry or node(comp.plan, record.index)
    if reason then set(record, 'reason', reason) end
    changed(comp, record.status == 'running' and -1 or 0, record, status)
    record.status, record.ended, record.just_ended = status, end_with(record.outputs), true
    record.noted = true
    totals[status] = (totals[status] or 0) + 1
    if entry.lost then return count_without_plan(record, comp, status) end
    if entry.map and fan_out.ended(record, comp, entry, status, reason) then return end
    comp[status] = comp[status] + 1
    comp.open = comp.open - 1
    comp.moved = true
    if status ~= 'completed' then comp.eventful = true end
    if entry.outputs == 0 then
      if status == 'completed' then
        comp.sinks = comp.sinks + 1
        if entry.only_sink then remember_sink_outputs(comp, entry, record.outputs) end
      end
    elseif not comp.stop then
      record.comp = comp
      work[#work + 1] = record
    end
    if status == 'failed' and comp.policy == 'fail_fast' then
      stopping.component(comp, stopping.system_mark('node "' .. entry.id .. '" failed and the flow fails fast'))
    end
    if comp.open == 0 then component_ended(comp) end
  end
end

local fail
do
  local CODES = {NODE_ERROR = true, INVALID_OUTPUT = true, OUTPUT_TOO_LARGE = true, INPUT_TOO_LARGE = true,
    INPUT_MISSING = true, SECRET_MISSING = true, START_TIMEOUT = true, TIMEOUT = true, HEARTBEAT_TIMEOUT = true,
    TOTAL_TIMEOUT = true, WORKER_LOST = true, PROCESS_DIED = true, UNKNOWN_NODE_TYPE = true, UNKNOWN_HANDLE = true,
    RETRY_BUDGET_EXHAUSTED = true, ITEMS_FAILED = true, WAIT_TIMEOUT = true, SUB_FLOW_FAILED = true}

  -- Fails a node task for good, with an error {code, message, ...}.
  function fail(record, comp, error)
    set(record, 'error', cmsgpack.pack(error))
    local name = 'failed:' .. (CODES[error.code] and error.code or 'OTHER')
    totals[name] = (totals[name] or 0) + 1
    finish(record, comp, 'failed')
  end
end

local function create(comp, id, entry, index)
  local record = {id = id, run = comp.run, key = comp.key, at = place_of(id, comp.run), sheet = comp.sheet,
    noted = true, status = 'registered', component_id = comp.id, index = index, waiting = entry.inputs, live = 0,
    whole = true, created = true, comp = comp, entry = entry, registered_at = stamp, ready_at = false, attempt = nil,
    nonce = false, worker_id = false, started_at = false, close_at = nil,
    edge = entry.inputs == 1 and entry.into[1] or nil}
  records[id] = record
  put('node_tasks_list', id, stamp)
  return record
end

-- Returns the value that `source` emitted by a handle, or false.
local function emitted(source, handle)
  if source.outputs then
    for _, output in ipairs(source.outputs) do
      if output[1] == handle then return output[2] end
    end
    return false
  end
  local field = 'out:' .. handle
  if source[field] == nil then source[field] = stored(source, field) end
  return source[field]
end

do
  local function should_run(run_if, edges, live)
    if run_if == 'all_succeeded' then return live == edges end
    return run_if == 'all_done' or live > 0
  end

  local function deliver_edge(comp, source, entry, edge)
    local target = node(comp.plan, edge[2])
    if target.lost then return end
    local id = task_of(comp.run, target.id)
    -- A node that waits for one signal has no record before it comes, unless somebody terminated it early.
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
    elseif not read_rest(record).dead then
      local reason = source.status == 'completed' and 'did not emit "' .. edge[1] .. '"'
        or source.status == 'failed' and 'failed'
        or 'was ' .. source.status
      set(record, 'dead', 'node "' .. entry.id .. '" ' .. reason)
    end
    if record.waiting > 0 then return end
    if should_run(target.run_if, target.inputs, record.live or 0) then
      enqueue(record, comp)
    else
      finish(record, comp, 'skipped', read_rest(record).dead)
    end
  end

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
        if not piece then return end
      end
      deliver_edge(comp, source, entry, piece[place - 1 - before])
    end
  end
end

function WORK.entries(comp, offset, entries)
  if comp.stop then return end
  local piece, before
  for at = offset, entries - 1 do
    if budget <= 0 then return at end
    budget = budget - 1
    if not piece or at % PIECE == 0 then piece, before = piece_of(comp.plan, 'entries', at) end
    if not piece then return end
    local place = piece[at - before]
    local entry = node(comp.plan, place)
    local id = task_of(comp.run, entry.id)
    if not (comp.early and task(id)) then enqueue(create(comp, id, entry, place), comp) end
  end
end

-- Lets the entry nodes of a component begin.
function todo.begin_entries(comp)
  local facts = stored_plans.facts(comp.plan)
  if facts then later('entries', comp, facts.entries, 0) end
end

-- Gives a plan its time to live when no open component uses it; a plan outside flows expires soon after its run.
function stored_plans.close(plan, count, ad_hoc)
  if not stored_plans.has(plan) then return end
  if call('HINCRBY', base .. 'plan:' .. plan, 'open', -count) <= 0 then
    local ttl = ad_hoc and limits.retention_ms + limits.tombstone_ms or limits.plan_retention_ms
    call('PEXPIRE', base .. 'plan:' .. plan, ttl)
  end
end

local settle
do
  local function finish_component(comp)
    comp.status, comp.finished_at, comp.moved = 'finished', stamp, true
    if comp.partition == NO_PARTITION then return end_ad_hoc(comp, comp.node_type or node(comp.plan, 0).type) end
    -- What few events have is at their end, and left out together.
    local failed, terminated, skipped, stop
    if comp.eventful then
      failed, terminated, skipped = comp.failed, comp.terminated, comp.skipped
      stop = comp.stop and cmsgpack.unpack(comp.stop) or nil
    end
    scheduler.add_event(comp.partition, 'finished', {time, comp.run, comp.run_id, comp.id, comp.nodes, comp.completed,
      comp.sinks, comp.sink or '', comp.outputs or {}, failed, terminated, skipped, stop})
    if comp.failed > 0 or comp.stop and comp.early ~= 'unwanted' then notices.component_failed(comp) end
  end

  -- Ends the components that go on while their plan is lost.
  local function end_planless()
    for i = 1, #components do
      local comp = components[i]
      if stored_plans.lost[comp.plan] and comp.open > 0 then
        -- A stop that came before has left what runs to end by itself, which it cannot do without its plan.
        if comp.stop then later('stop', comp, 0, 0) end
        stopping.component(comp, stopping.system_mark(stopping.PLAN_LOST))
      end
    end
    stored_plans.lost = {}
    todo.do_all()
  end

  function settle()
    todo.do_all()
    if next(stored_plans.lost) then end_planless() end
    if #finished == 0 then return end
    local closed, ad_hoc = {}, {}
    for i = 1, #finished do
      local comp = finished[i]
      finish_component(comp)
      closed[comp.plan] = (closed[comp.plan] or 0) + 1
      ad_hoc[comp.plan] = comp.partition == NO_PARTITION
    end
    for plan, count in pairs(closed) do stored_plans.close(plan, count, ad_hoc[plan]) end
    finished = {}
  end
end
