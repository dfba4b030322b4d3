--!include when_full
--!include clocks
-- Assignments: attempts that begin on workers, with all that a worker gets of them. Uses args: nonce.
local assignments = {}
do
  local CLAIM_BYTES = 2 * 1024 * 1024
  -- Numbers as text, kept from script to script.
  local hex = setmetatable({}, {__index = function(known, number)
    known[number] = string.format('%x', number)
    return known[number]
  end})
  -- How many bytes of inputs they carry, and the inputs of runs.
  local carried, inputs_of_runs = 0, {}
  fresh(function()
    carried = 0
    if next(inputs_of_runs) then inputs_of_runs = {} end
  end)

  -- Whether the inputs are too large together for further assignments.
  function assignments.are_large() return carried >= CLAIM_BYTES end

  -- Notes the inputs of a run that this script submits.
  function assignments.note_inputs(run, inputs) inputs_of_runs[run] = inputs end

  -- Returns the values of the live edges into a node, in the order of the plan, and whether they are to be read outside
  -- the claim, because there are too many or they are too large together.
  local function inputs_of(record, entry)
    local INPUT_BYTES = 256 * 1024
    local into, fields = entry.into, entry.fields
    if entry.inputs == 0 then return {}, false end
    if not into then return {}, true end
    if #into == 1 then
      local field = fields[1]
      local value = record[field] or not record.created and stored(record, field)
      if not value then return {}, false end
      if #value > INPUT_BYTES then return {}, true end
      carried = carried + #value
      return {{into[1], value}}, false
    end
    local inputs, size, before = {}, 0, not record.created and stored_all(record, fields)
    for i = 1, #into do
      local value = record[fields[i]] or before and before[i]
      if value then
        inputs[#inputs + 1] = {into[i], value}
        size = size + #value
      end
    end
    if size > INPUT_BYTES then return {}, true end
    carried = carried + size
    return inputs, false
  end

  -- Returns the inputs of the run, which entry nodes get; a component that was withheld may have its own.
  local function inputs_of_run(comp)
    local run = comp.run
    if comp.early == 'freed' then
      local own = stored(comp, 'inputs')
      if own then
        carried = carried + #own
        return own
      end
    end
    local inputs = comp.has_inputs and inputs_of_runs[run]
    if inputs == nil then
      inputs = call('HGET', base .. 'run:' .. run, 'inputs')
      inputs_of_runs[run] = inputs
    end
    if inputs then carried = carried + #inputs end
    return inputs
  end

  -- Adds an Assignment; `waited` is how many ms the node task was ready before this attempt began. What few need is at
  -- the end, and left out together.
  function assignments.add(record, comp, entry, close_at, waited)
    local given, attempt = effects.assignments, record.attempt
    local inputs, outside, of_run, traceparent, resumed
    if entry.inputs > 0 or comp.has_inputs or comp.early or comp.traceparent or attempt > 1 then
      inputs, outside = inputs_of(record, entry)
      of_run, traceparent = entry.inputs == 0 and inputs_of_run(comp) or '', comp.traceparent or ''
      resumed = attempt > 1 and read_rest(record).resumed and cmsgpack.unpack(record.resumed) or nil
    end
    given[#given + 1] = {record.worker_id, record.id, record.nonce, attempt, comp.id, comp.plan, record.index,
      comp.run_id, comp.user_id, comp.planned, close_at, waited, inputs, outside, of_run, traceparent, resumed}
  end

  -- Nonces begin with these characters of the id of their run. A run that was removed may have had the same name, and
  -- the same node tasks.
  function assignments.tag_of(run_id) return string.sub(run_id, 1, 4) end

  -- Begins the next attempt of a node task in a vacancy; `own` are its own limits.
  function assignments.begin(record, entry, comp, own, vacancy)
    slots.take(record, entry, comp, own)
    local attempt, ready_at, place = (record.attempt or 0) + 1, record.ready_at, #effects.assignments
    local started_at, close_at, deadline = clocks.begin(record, entry, comp, attempt)
    local waited = ready_at and ready_at ~= stamp and time - ready_at or 0
    if waited < 0 then waited = 0 end
    record.status = 'running'
    record.attempt, record.worker_id, record.started_at, record.close_at = attempt, vacancy.worker_id, started_at,
      close_at
    record.nonce = assignments.tag_of(comp.run_id) .. args.nonce .. hex[place]
    record.noted = true
    changed(comp, 1, record, 'running')
    if attempt > 1 then
      note(record, 'progress', 0)
      note(record, 'message', '')
      note(record, 'step', '')
    end
    if entry.retry then retry_budget.count(comp) end
    leasing.begin(record, deadline)
    -- Only node tasks that were ready before this script are in `start_deadlines`.
    if (entry.start > 0 or entry.total) and not record.start_by then remove('start_deadlines', record.id) end
    vacancy.credits = vacancy.credits - 1
    assignments.add(record, comp, entry, close_at, waited)
  end
end
