--!include release
-- Reruns: if the previous run's result of a node is kept, the node has a record that is completed from the start and
-- refers to that result: its outputs are `@`, and their values are in the record that `kept` names. The places of such
-- nodes wait in the list `kept:<run>:<component>`. Until the list is empty, the component has early = 'keep': nothing
-- is delivered or stopped, since no signal may reach a kept node. What follows comes after this work in `todo`.
do
  local function keep(comp, from, place)
    if place >= comp.nodes then return end
    local entry = node(comp.plan, place)
    if entry.lost then return end
    local id, source = task_of(comp.run, entry.id), task(task_of(from, entry.id))
    -- Without the result the node runs like any other; a node that somebody has stopped already stays as it is.
    if not source or source.status ~= 'completed' or task(id) then return end
    local record = create(comp, id, entry, place)
    local v = stored_all(source, {'kept', 'cached'})
    record.status, record.ready_at, record.attempt = 'completed', source.ready_at, source.attempt
    record.worker_id, record.started_at = source.worker_id, source.started_at
    set(record, 'kept', v[1] or source.id)
    record.ended = source.ended
    if v[2] then note(record, 'cached', v[2]) end
    for at, handle in ipairs(source.ended) do
      if at > 1 then set(record, 'out:' .. handle, '@') end
    end
    changed(comp, 0, record, 'completed')
    comp.completed = comp.completed + 1
    comp.open = comp.open - 1
    comp.moved = true
    if entry.outputs == 0 then comp.sinks = comp.sinks + 1 else later('deliver', comp, place, 1, record) end
  end

  local function finish_keeping(comp)
    set_eventful(comp, 'early', 'kept')
    if comp.open == 0 then
      component_ended(comp)
    elseif comp.stop then
      later('stop', comp, 0, 0)
    else
      todo.begin_entries(comp)
    end
  end

  function WORK.keep(comp, _, source)
    local list, from = base .. 'kept:' .. comp.run .. ':' .. comp.id, string.match(comp.run, '^(.+:)%d+$') .. source
    while budget > 0 do
      local places = call('LPOP', list, budget)
      if not places then return finish_keeping(comp) end
      budget = budget - #places
      for _, place in ipairs(places) do keep(comp, from, tonumber(place)) end
    end
    return 0
  end
end
