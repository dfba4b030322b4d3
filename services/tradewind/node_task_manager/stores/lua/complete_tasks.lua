-- Ends attempts: stores outputs or errors, delivers signals, releases or skips successors, and gives ready node tasks
-- to vacancies. An attempt that does not hold its lease changes nothing.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, count, outcomes as a flat sequence: task_id,
-- attempt, nonce, kind, how many outputs, the handle and text of each, and false or {error, retry_request {after_ms,
-- none}, cache (where the outputs come from, or ""), wait (of a suspended attempt), unreported (an error that no worker
-- has reported)}; eager (for attempts that a worker began by itself, that worker, at the place of the outcome).
-- Returns Effects; results, one for each outcome: "" when it takes effect or already had, else why not.
--!include eager
-- Whether an attempt may be a later one of the same run, which the store has forgotten with its last second.
local function is_forgotten(record, attempt, nonce)
  if (record.attempt or 0) >= attempt or record.status == 'registered' then return false end
  local comp = component_of(record)
  return not comp or string.find(nonce, assignments.tag_of(comp.run_id), 1, true) == 1
end

-- Returns why an outcome changes nothing, "" when it took effect before; nil when it counts.
local function refusal(record, attempt, nonce, kind)
  if not record then return 'no such node task' end
  if TERMINAL[record.status] then
    if record.nonce == nonce then return '' end
    return 'the node task is ' .. record.status
  end
  if is_forgotten(record, attempt, nonce) then return nil end
  if record.nonce ~= nonce or record.status ~= 'running' then
    if (kind == 'failed' or kind == 'suspended') and retries.has_failed(record, nonce) then return '' end
    return 'the lease lapsed; this is attempt ' .. attempt .. ', the latest is ' .. (record.attempt or 0)
  end
end

-- Applies the outcome of an attempt whose lease has been released.
local function apply_outcome(record, comp, kind, outputs, error, retry_request, cache, wait, unreported)
  if kind == 'failed' then
    if unreported then logs.add_error(record, error) end
    retries.fail(record, comp, error, retry_request)
  elseif kind == 'completed' then
    emit(record, outputs)
    if cache ~= '' then
      note(record, 'cached', cache)
      set_state(record, 'worker_id', '')
      comp.cached = (comp.cached or tonumber(stored(comp, 'cached') or 0)) + 1
      write(comp, 'cached', comp.cached)
    end
    finish(record, comp, 'completed')
  elseif kind == 'suspended' and not record.stop and not comp.stop then
    set(record, 'settled', record.nonce)
    suspension.begin(record, comp, wait)
  else
    finish(record, comp, 'terminated', record.stop and cmsgpack.unpack(record.stop).reason or error and error.message)
  end
end

local function complete(task_id, attempt, nonce, kind, ...)
  local record = task(task_id)
  local refused = refusal(record, attempt, nonce, kind)
  if refused then return refused end
  local comp = component_of(record)
  if not comp then return 'the run is gone' end
  record.entry = node(comp.plan, record.index)
  if record.entry.lost then return stopping.PLAN_LOST end
  if record.entry.map and not fan_out.is_item(record.id) then
    return 'the node runs once for each item of a list; only its items are given to workers'
  end
  if record.status == 'running' then release_lease(record) else dequeue(record, comp) end
  -- Of an attempt that the store has lost, nobody knows when it began.
  if record.nonce ~= nonce then
    set_state(record, 'nonce', nonce)
    set_state(record, 'attempt', attempt)
    set_state(record, 'started_at', stamp)
  end
  apply_outcome(record, comp, kind, ...)
  return ''
end

-- Completes an attempt that a worker began by itself on outputs of `source`, whose outcome counts unless it is
-- `refused`.
local function complete_eager(worker_id, source, refused, task_id, attempt, nonce, kind, ...)
  local ALIKE = 'the outcome it was begun on was refused: '
  if refused ~= '' then return string.sub(refused, 1, #ALIKE) == ALIKE and refused or ALIKE .. refused end
  todo.do_early()
  local record = task(task_id)
  if not record or record.status ~= 'pending' or record.attempt then
    if kind ~= 'begun' then return complete(task_id, attempt, nonce, kind, ...) end
    return record and record.nonce == nonce and '' or 'the node task is ' .. (record and record.status or 'not ready')
  end
  local comp = component_of(record)
  if not comp then return 'the run is gone' end
  local refusal, till = eager.begin(worker_id, task(source), record, comp, nonce)
  if refusal then return refusal end
  if kind == 'begun' then
    leasing.begin(record, till)
  else
    apply_outcome(record, comp, kind, ...)
  end
  return ''
end

budget = budget - args.count
local given, at, begun, before, results = args.outcomes, 1, args.eager, nil, effects.results
for i = 1, args.count do
  local count = given[at + 4]
  local outputs, last = count > 0 and {{given[at + 5], given[at + 6]}} or {}, at + 4 + 2 * count
  for place = at + 7, last, 2 do outputs[#outputs + 1] = {given[place], given[place + 1]} end
  local id, attempt, nonce, kind, rest = given[at], given[at + 1], given[at + 2], given[at + 3], given[last + 1]
  local error, retry_request, cache, wait, unreported = nil, nil, '', nil, false
  if rest then error, retry_request, cache, wait, unreported = unpack(rest, 1, 5) end
  if begun and begun[i] then
    results[i] = complete_eager(begun[i], before, results[i - 1], id, attempt, nonce, kind, outputs, error,
      retry_request, cache, wait, unreported)
  else
    results[i] = complete(id, attempt, nonce, kind, outputs, error, retry_request, cache, wait, unreported)
  end
  before, at = id, last + 2
end
return cmsgpack.pack(conclude())
