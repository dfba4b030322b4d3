--!include doctor
-- Compares components and their runs with the records of their nodes, and with the indexes that name them.
do
  local call, score_of, removal = naming_call, doctor.score_of, doctor.removal

  -- Counts nodes by status from their records, some nodes in each step.
  local COUNTED = {'completed', 'failed', 'terminated', 'skipped'}
  local PIECES = 250
  local function ended_of(comp) return comp.completed + comp.failed + comp.terminated + comp.skipped end

  -- Goes on with a count {run, component, place, ended at the beginning, counts}; returns it when there is more.
  function doctor.count(job)
    local run, id, place, began, counts = job[1], job[2], job[3], job[4], job[5]
    local comp = component(run, id)
    if not comp or not doctor.has_plan(comp) then return end
    if comp.status == 'finished' and doctor.is_being_removed(run) then return end
    local ids, before
    local last = math.min(place + PIECES, comp.nodes) - 1
    for at = place, last do
      if not ids or at % PIECE == 0 then ids, before = piece_of(comp.plan, 'ids', at) end
      local state = call('HGET', comp.key, ids[at - before] .. ':state')
      local status = state and cmsgpack.unpack(state)
      if status then counts[status] = (counts[status] or 0) + 1 end
      if status and not TERMINAL[status] then doctor.listing(task_of(run, ids[at - before])) end
    end
    doctor.records = doctor.records + last - place + 1
    if last + 1 < comp.nodes then return {run, id, last + 1, began, counts} end
    -- Some nodes have ended meanwhile: leave it to the next pass.
    if ended_of(comp) ~= began then return end
    local wrong = {}
    for _, status in ipairs(COUNTED) do
      if comp[status] ~= (counts[status] or 0) then
        wrong[#wrong + 1] = (counts[status] or 0) .. ' ' .. status .. ' nodes, counted as ' .. comp[status]
      end
    end
    if #wrong > 0 then
      -- A component whose end was announced stays as it is.
      local mend = comp.status ~= 'finished' and function()
        for _, status in ipairs(COUNTED) do
          comp[status] = counts[status] or 0
          if status ~= 'completed' then write(comp, status, comp[status]) end
        end
        comp.eventful, comp.moved = true, true
        comp.open = comp.nodes - ended_of(comp)
        if comp.open == 0 then component_ended(comp) end
      end or nil
      found('component-counts', run .. ':' .. id, 'it has ' .. table.concat(wrong, ', '), mend)
    elseif comp.open == 0 and comp.status == 'running' and doctor.all_done() then
      found('component-not-finished', run .. ':' .. id, 'all its nodes have ended, but no event says so',
        function() component_ended(comp) end)
    elseif comp.status == 'running' and comp.early ~= 'held' and comp.early ~= 'keep' and doctor.all_done()
      and not (counts.pending or counts.running or counts.suspended) then
      found('component-stalled', run .. ':' .. id, comp.open .. ' of its nodes have not ended, but none of its nodes '
        .. 'runs or waits for anything: stop the run, and run it again')
    end
    if comp.partition == NO_PARTITION and comp.nodes <= PIECES then
      local running = tonumber(stored(comp, 'running') or 0)
      if running ~= (counts.running or 0) then
        found('batch-counts', run, (counts.running or 0) .. ' of its nodes run, counted as ' .. running,
          function() call('HSET', comp.key, comp.at .. 'running', counts.running or 0) end)
      end
    end
  end

  local function examine_plan(comp)
    if comp.status == 'running' and doctor.has_plan(comp) and doctor.ttl('plan:' .. comp.plan) >= 0 then
      found('open-run-expires', 'plan:' .. comp.plan, 'an open run needs it, but it would expire',
        function() call('PERSIST', base .. 'plan:' .. comp.plan) end)
    end
  end

  local function examine_ttl(comp, open)
    local name, left = 'run:' .. comp.run, doctor.ttl('run:' .. comp.run)
    if open and left >= 0 then
      found('open-run-expires', name, 'it is open but would expire in ' .. left .. ' ms', function()
        call('PERSIST', comp.key)
      end)
    elseif not open and left == -1 and doctor.all_done() then
      found('no-time-to-live', name, 'it has ended but would stay for ever',
        function() call('PEXPIRE', comp.key, limits.retention_ms) end)
    end
  end

  local function examine_count(comp, parts)
    local counted = tonumber(call('HGET', comp.key, 'open')) or 0
    if counted ~= parts then
      found('run-counts', comp.run, parts .. ' of its components are open, but it counts ' .. counted,
        (parts > 0 or counted < 0) and function() call('HSET', comp.key, 'open', parts) end or nil)
    end
  end

  -- What an open run tells others goes to streams and lists of others.
  local function examine_reports(comp)
    if comp.partition ~= NO_PARTITION then doctor.index('events:' .. digits[comp.partition], 'stream') end
    if comp.run == task_of(comp.run, '') then doctor.index('task_events:' .. comp.run, 'stream') end
    doctor.index('notifications:' .. comp.user_id, 'stream')
    doctor.index('dead_letters:' .. comp.user_id, 'zset')
  end

  -- A run outside any flow is in the list of its user. A run of a flow is in the index of the flow: among the open ones
  -- while it is open, and after its end until the cleaner has seen it.
  local function examine_index(comp, open)
    if comp.partition == NO_PARTITION then
      local score = tonumber(score_of(user_runs.list(comp.user_id, comp.run), comp.run))
      if open and (not score or score < user_runs.OPEN) then
        found('run-not-listed', comp.run, 'it is open but not among the open ones in the list of its user', function()
          user_runs.put(comp.user_id, comp.run, user_runs.OPEN + flow_runs.begun_at(comp.run, comp.id))
        end)
      end
      return
    end
    local flow, name = flow_runs.names(comp.run)
    local index = 'flow_runs:' .. flow
    local score = tonumber(score_of(index, name))
    if open and (not score or score < flow_runs.OPEN) then
      found('run-not-listed', comp.run, 'it is open, but deleting its flow would leave it behind',
        function() put(index, name, flow_runs.OPEN + flow_runs.number(name)) end)
    elseif open and not score_of('to_clean', 'run:' .. comp.run) then
      found('run-not-listed', comp.run, 'it is open, but the scheduler would not be asked whether it still is',
        function() put('to_clean', 'run:' .. comp.run, time) end)
    elseif not open and (not score or score >= flow_runs.OPEN) and not score_of('to_clean', 'run:' .. comp.run)
      and doctor.all_done() then
      found('run-not-listed', comp.run, 'it has ended, but the index of its flow does not say so',
        function() put('to_clean', 'run:' .. comp.run, time) end)
    end
    if not doctor.is_new(index) then return end
    local others = doctor.read('zset', 'ZRANGE', index, flow_runs.OPEN, 'inf', 'BYSCORE', 'LIMIT', 0, 20) or {}
    for _, other in ipairs(others) do
      local gone = 'run:' .. flow .. ':' .. other
      -- What has expired is taken out when its run is cleaned.
      if call('EXISTS', base .. gone) == 0 and not score_of('to_clean', gone) then
        found('index-without-record', index .. ' ' .. other, 'no such run is on record', removal(index, other))
      end
    end
  end

  -- Whether a component is the first one of its run that may have node tasks.
  local function represents_run(comp, ids)
    for _, id in ipairs(ids) do
      if id == comp.id then return true end
      local other = component(comp.run, id)
      if other and other.early ~= 'held' then return false end
    end
  end

  -- Examines a run; `comp` is one of its components.
  local function examine_run(comp, ids)
    local open, parts = comp.status ~= 'finished', 0
    for _, id in ipairs(#ids > 1 and ids or {}) do
      local v = call('HMGET', comp.key, id .. '/facts', id .. '/state')
      local status = packing.state_of(v[2])
      -- If one component is being removed, so are the others.
      if not v[1] or status == 'purged' then return end
      if status ~= 'finished' then parts = parts + 1 end
    end
    doctor.records = doctor.records + #ids
    open = open or parts > 0
    if open then examine_reports(comp) end
    examine_ttl(comp, open)
    if #ids > 1 then examine_count(comp, parts) end
    examine_index(comp, open)
  end

  -- Examines a component, and with one of them the run itself.
  function doctor.component(comp, jobs)
    if comp.status == 'finished' and doctor.is_being_removed(comp.run) then return end
    local ids = component_ids(comp.run)
    if #ids ~= (comp.parts or 1) then
      found('component-without-run', comp.run .. ':' .. comp.id, 'its run does not list it, and would never end: '
        .. 'remove the key ' .. comp.key .. ', and the run begins again')
      return
    end
    if represents_run(comp, ids) then examine_run(comp, ids) end
    examine_plan(comp)
    jobs[#jobs + 1] = {comp.run, comp.id, 0, ended_of(comp), {}}
  end

  -- Looks at the first node task of each component of an open run: through it all the others are found.
  function doctor.open_run(run)
    for _, id in ipairs(component_ids(run)) do
      local comp = component(run, id)
      if comp and comp.status == 'running' and doctor.has_plan(comp) then
        local first = piece_of(comp.plan, 'entries', 0)[1]
        local ids, before = piece_of(comp.plan, 'ids', first)
        local name = task_of(run, ids[first - before])
        if task(name) then doctor.listing(name) end
      end
      doctor.records = doctor.records + 1
    end
  end

  function doctor.work_left(text)
    if todo.unpacked(text) then return end
    local kind, run, id = todo.facts(text)
    local subject, problem = 'an entry', 'it is no work that a script leaves'
    if kind then subject, problem = kind .. ' ' .. run .. ':' .. id, 'work is left for a component that is gone' end
    found('todo-of-nothing', subject, problem, function() call('LREM', base .. 'todo', 1, text) end)
  end
end
