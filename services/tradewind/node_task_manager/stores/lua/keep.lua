--!include release
-- Reruns: a node whose result of the run before is kept has a record that is completed from the start and refers to that
-- result: its outputs are `@`, and stand in the record that `kept` names. The places of such nodes wait in the list
-- `kept:<component>`. Until it is empty the component is early = 'keep': nothing is delivered or stopped before, since a
-- kept node must not be reached by a signal. What follows stands behind it in `todo`.
do
  local function take_over(record, _, _, _, ready_at, attempt, _, worker_id, started_at)
    record.ready_at, record.attempt, record.worker_id, record.started_at = ready_at, attempt, worker_id, started_at
  end

  local function keep(comp, from, place)
    if place >= comp.nodes then return end
    local entry = node(comp.plan, place)
    local id, source = task_of(comp.run, entry.id), task_of(from, entry.id)
    local key = base .. 'node_tasks:' .. source
    local v = call('HMGET', key, 'status', 'kept', 'facts', 'ended_at', 'cached')
    -- Without the result it runs, as any node; one that somebody stopped before stays as it is.
    if v[1] ~= 'completed' or task(id) then return end
    local record = create(comp, id, entry, place)
    record.status = 'completed'
    set(record, 'kept', v[2] or source)
    call('PERSIST', base .. 'node_tasks:' .. record.kept)
    take_over(record, cmsgpack.unpack(v[3]))
    note(record, 'ended_at', v[4])
    if v[5] then note(record, 'cached', v[5]) end
    for _, field in ipairs(call('HKEYS', key)) do
      if string.sub(field, 1, 4) == 'out:' then set(record, field, '@') end
    end
    changed(comp, 0, record, 'completed')
    comp.completed = comp.completed + 1
    comp.open = comp.open - 1
    comp.counted = true
    if entry.outputs == 0 then comp.sinks = comp.sinks + 1 else later('deliver', comp, place, 1, record) end
  end

  local function go_on(comp)
    set_eventful(comp, 'early', 'kept')
    if comp.open == 0 then
      finished[#finished + 1] = comp
      expire_run(comp)
    elseif comp.stop then
      later('stop', comp, 0, 0)
    else
      later('entries', comp, cmsgpack.unpack(call('HGET', base .. 'plan:' .. comp.plan, 'facts')).entries, 0)
    end
  end

  function keeping.keep(comp, _, source)
    local list, from = base .. 'kept:' .. comp.run .. ':' .. comp.id, string.match(comp.run, '^(.+:)%d+$') .. source
    while budget > 0 do
      local places = call('LPOP', list, budget)
      if not places then return go_on(comp) end
      budget = budget - #places
      for _, place in ipairs(places) do keep(comp, from, tonumber(place)) end
    end
    return 0
  end
end
