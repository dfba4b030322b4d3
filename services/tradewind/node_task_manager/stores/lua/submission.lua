--!include claim
-- Takes or refuses runs that are submitted. Uses the args of submit_runs.
local submission = {}
do
  local ACCEPTED = {outcome = 'accepted'}
  -- What has yet to be written to the index of runs of the flow `indexed`: `entered` values of `entries`. The table is
  -- kept, since growing a new one would be slower.
  local indexed, entries, entered = nil, {}, 0
  local backlog, known_plans, opened, begun, existing_runs, queued, waiting_types, obstacles, confirm_at

  -- To be called first.
  function submission.open()
    backlog, known_plans, opened, begun, existing_runs = {}, {}, {}, {}, 0
    queued, waiting_types, obstacles, entered = {}, nil, nil, 0
    confirm_at = string.format('%.0f', time + limits.confirm_ms)
  end

  local function plan_facts(digest)
    if known_plans[digest] == nil then known_plans[digest] = stored_plans.facts(digest) or false end
    return known_plans[digest]
  end

  -- Returns how many ready node tasks of a user wait, including those submitted in this script.
  local function queued_of(user)
    if not queued[user] then
      local count, call = 0, index_call
      waiting_types = waiting_types or call('ZRANGE', base .. 'ready_types', 0, -1)
      local types = {}
      for _, node_type in ipairs(waiting_types) do types[node_type] = true end
      if limits.bounded then
        for _, member in ipairs(call('ZRANGE', base .. 'parked', '[' .. user .. ':', '(' .. user .. ';', 'BYLEX')) do
          types[string.match(member, ':(.*)$')] = true
        end
      end
      for node_type in pairs(types) do count = count + call('ZCARD', base .. 'ready:' .. node_type .. ':' .. user) end
      for _, group in ipairs(call('ZRANGE', base .. 'blocked_of', '[' .. user .. '|', '(' .. user .. '}', 'BYLEX')) do
        count = count + call('ZCARD', base .. 'blocked:' .. string.match(group, '^[^|]*|(.*)$'))
      end
      queued[user] = count
    end
    return queued[user]
  end

  -- Reads what stands in the way of runs, by key: a tombstone of their flow, and marks that stop them or one of their
  -- components. Also counts how many of these run names are on record. Mostly there is nothing of all that.
  function submission.load_obstacles(runs)
    local keys, n, found = {}, 0, 0
    for place = 1, #runs do
      local run = runs[place]
      local stop, parts = base .. 'stop:' .. run.run, run.parts
      keys[n + 1], keys[n + 2], keys[n + 3] = run.key, base .. 'purged:' .. run.flow_id, stop
      n = n + 3
      for i = 1, #parts, 2 do
        n = n + 1
        keys[n] = stop .. ':' .. parts[i]
      end
    end
    for first = 1, n, 1000 do found = found + call('EXISTS', unpack(keys, first, math.min(first + 999, n))) end
    for first = 1, found > 0 and n or 0, 1000 do
      for i, value in ipairs(call('MGET', unpack(keys, first, math.min(first + 999, n)))) do
        if value then
          obstacles = obstacles or {}
          obstacles[keys[first + i - 1]] = value
          found = found - 1
        end
      end
    end
    -- MGET finds no value at the keys of runs, which are hashes: what it has not found are runs, counted as often as
    -- they were asked for.
    existing_runs = found
  end

  local function source_of(run) return string.match(run.run, '^(.+:)%d+$') .. run.rare.source end

  -- Returns why a run of a flow is refused.
  local function flow_refusal(run)
    local purged = obstacles and obstacles[base .. 'purged:' .. run.flow_id]
    if purged and run.begun_ms <= tonumber(string.match(purged, '^%d+')) then return {outcome = 'flow_purged'} end
    local partition = run.partition
    backlog[partition] = backlog[partition] or index_call('XLEN', base .. 'events:' .. digits[partition])
    if backlog[partition] >= limits.events_per_partition then return {outcome = 'events_full'} end
  end

  -- Ends a run that the scheduler has lost, with the components that handle its outcome: it has begun another since,
  -- and gave that the same name.
  function submission.end_lost_run(run)
    local stop = stopping.system_mark('the scheduler has lost this run, and given its number to another')
    for _, id in ipairs(component_ids(run.run)) do
      -- While a run is being purged, some of its components may have no record any more.
      local comp = component(run.run, id)
      if comp and flow_runs.begun_at(run.run, id) < run.begun_ms then stopping.component(comp, stop) end
    end
  end

  -- Returns the stop mark that is meant for this very run (by its run_id), of the two that may exist. That of the run
  -- does not apply to components that handle its outcome.
  local function stop_mark(run, id, held)
    if not obstacles then return end
    local key = base .. 'stop:' .. run.run
    local stopped, own = not held and obstacles[key], obstacles[key .. ':' .. id]
    for _, text in ipairs({stopped or '', own or ''}) do
      local mark = text ~= '' and cmsgpack.unpack(text)
      if mark and mark.run_id == run.run_id then
        return cmsgpack.pack({reason = mark.reason, by = mark.by, at = mark.at})
      end
    end
  end

  -- Returns a set of the components of a run that begin later; nil, as for most runs, if there are none.
  local function withheld(run)
    if #run.rare.withheld == 0 then return end
    local held = {}
    for _, id in ipairs(run.rare.withheld) do held[id] = true end
    return held
  end

  -- Returns the run_id on record, nil for none. A record that somebody has changed so that it cannot be read makes way.
  function submission.run_id_of(run)
    local readable, run_id = pcall(known_run, run.run)
    if readable and type(run_id) == 'string' then return run_id end
    if run_id or type(redis.pcall('HLEN', run.key)) == 'table' then call('DEL', run.key) end
  end

  function submission.refusal(run)
    local run_id = begun[run.run]
      or (existing_runs > 0 or obstacles and obstacles[run.key]) and submission.run_id_of(run)
    if run_id == run.run_id then return {outcome = 'duplicate'} end
    if run_id then
      if run.partition ~= NO_PARTITION then submission.end_lost_run(run) end
      return {outcome = 'run_conflict', existing_run_id = run_id}
    end
    if run.partition ~= NO_PARTITION then
      local refused = flow_refusal(run)
      if refused then return refused end
    end
    if #run.rare.kept > 0 then
      local source = source_of(run)
      local dropped = call('HGET', base .. 'run:' .. source, 'dropped')
      if known_run(source) ~= run.rare.source_id or dropped then return {outcome = 'results_expired'} end
    end
    local unknown, total, held = nil, queued_of(run.user_id), withheld(run)
    for i = 2, #run.parts, 2 do
      local id, digest = run.parts[i - 1], run.parts[i]
      local facts = plan_facts(digest)
      if facts then
        if not (held and held[id]) and not stop_mark(run, id) then total = total + facts.entries end
      else
        unknown = unknown or {}
        unknown[#unknown + 1] = digest
      end
    end
    if unknown then return {outcome = 'plan_unknown', unknown_plans = unknown} end
    if total > limits.user_queue then return {outcome = 'queue_full'} end
    queued[run.user_id] = total
  end

  local function begin_component(run, id, digest, kept, held)
    local facts, key = plan_facts(digest), run.key
    local comp = {id = id, run = run.run, key = key, at = id .. '/', sheet = sheet_of(run.run, key), status = 'running',
      open = facts.nodes, completed = 0, failed = 0, terminated = 0, skipped = 0, sinks = 0, run_id = run.run_id,
      user_id = run.user_id, plan = digest, nodes = facts.nodes, policy = facts.policy, partition = run.partition,
      planned = run.planned_ms, traceparent = run.traceparent ~= '' and run.traceparent,
      parts = #run.parts > 2 and #run.parts / 2, has_inputs = run.inputs_json ~= '', eventful = false,
      finished_at = nil, moved = nil, sink = nil, outputs = nil}
    use_edition(digest, facts.edition)
    comp.sheet[comp.at], components[#components + 1] = comp, comp
    write(comp, 'facts', packing.facts(comp, time, run.node_type, facts.edition))
    opened[digest] = (opened[digest] or 0) + 1
    changed(comp, 0)
    local mark = stop_mark(run, id, held)
    if kept then
      set_eventful(comp, 'early', 'keep')
      in_pieces('RPUSH', base .. 'kept:' .. run.run .. ':' .. id, kept)
      later('keep', comp, run.rare.source, 0)
    end
    if held then set_eventful(comp, 'early', 'held') end
    if run.partition == NO_PARTITION then comp.submitted_at = time end
    if mark then
      stopping.component(comp, mark)
    elseif not kept and not held then
      later('entries', comp, facts.entries, 0)
    end
  end

  -- Keeps the previous run on record for as long as the rerun. Returns the nodes whose results are kept, by component.
  local function persist_source(run)
    local source, kept = source_of(run), {}
    local flow, name = flow_runs.names(source)
    local cycle = string.match(run.run, '^(.+:)%d+$')
    for at = run.rare.source, 0, -1 do call('PERSIST', base .. 'run:' .. cycle .. at) end
    remove('flow_runs:' .. flow, name)
    for _, each in ipairs(run.rare.kept) do kept[each[1]] = each[2] end
    return kept
  end

  -- Writes a field of the run itself.
  local function write_own(run, field, value) write({at = '', sheet = sheets[run.run]}, field, value) end

  local function name_components(run)
    local ids = {}
    for i = 1, #run.parts, 2 do ids[#ids + 1] = run.parts[i] end
    write_own(run, 'run_id', run.run_id)
    write_own(run, 'components', cmsgpack.pack(ids))
    -- Written at once: components that end in this script are counted down there.
    if #ids > 1 then call('HSET', sheets[run.run].key, 'open', #ids) end
  end

  local function write_index()
    if entered > 0 then index_call('ZADD', base .. 'flow_runs:' .. indexed, unpack(entries, 1, entered)) end
    entered = 0
  end

  -- Enters a run in the index of its flow, together with others of that flow that begin next.
  local function enter_in_index(run)
    if run.flow_id ~= indexed then
      write_index()
      indexed = run.flow_id
    end
    local name = string.sub(run.run, #run.flow_id + 2)
    entries[entered + 1], entries[entered + 2] = flow_runs.OPEN + flow_runs.number(name), name
    entered = entered + 2
  end

  function submission.begin(run)
    local held, rare, parts = withheld(run), run.rare, run.parts
    local kept = rare.source >= 0 and persist_source(run)
    for i = 1, #parts, 2 do
      local id = parts[i]
      begin_component(run, id, parts[i + 1], kept and kept[id], held and held[id])
    end
    if #parts > 2 or parts[1] ~= '0' then name_components(run) end
    if run.inputs_json ~= '' then
      assignments.note_inputs(run.run, run.inputs_json)
      write_own(run, 'inputs', run.inputs_json)
    end
    if rare.keep_cycles + rare.keep_for_ms > 0 then
      write_own(run, 'keep', rare.keep_cycles .. ' ' .. rare.keep_for_ms)
    end
    begun[run.run] = run.run_id
    if run.partition == NO_PARTITION then
      user_runs.put(run.user_id, run.run, user_runs.OPEN + time)
    else
      enter_in_index(run)
      put('to_clean', 'run:' .. run.run, confirm_at)
    end
    return ACCEPTED
  end

  -- To be called last: writes what submission.begin has collected.
  function submission.close()
    write_index()
    -- Plans that are now in use have no time to live.
    for digest, count in pairs(opened) do
      if call('HINCRBY', base .. 'plan:' .. digest, 'open', count) == count then
        call('PERSIST', base .. 'plan:' .. digest)
      end
    end
  end
end
