--!include fan_out
-- Stops and removals of a component whose plan the store has lost: only its records tell of its nodes.
do
  -- Returns the records of a component's node tasks: items come before their mapped nodes.
  function stopping.on_record(run, component_id)
    local found, nodes = {}, {}
    for _, field in ipairs(call('HKEYS', base .. 'run:' .. run)) do
      local place = string.match(field, '^([^:]*):state$') or string.match(field, '^([^:]*:%d+):state$')
      local record = place and task(task_of(run, place))
      if record and record.component_id == component_id then
        table.insert(fan_out.is_item(record.id) and found or nodes, record)
      end
    end
    for i = 1, #nodes do found[#found + 1] = nodes[i] end
    return found
  end

  -- Takes out a node task. Only its queue is not known; who finds it there passes it over.
  function stopping.take_out(record, mark)
    if record.status == 'running' and record.worker_id then
      release_lease(record)
      stopping.add_termination(record, mark)
      record.nonce = ''
      return
    end
    slots.withdraw(record)
    remove('start_deadlines', record.id)
    undelay(record)
    call('UNLINK', base .. 'items:' .. record.id)
  end

  -- Ends a component: what is on record at once, even if it runs, and the rest as skipped. Returns 0 when the budget is
  -- used up.
  function stopping.without_plan(comp)
    local reason = cmsgpack.unpack(comp.stop).reason
    comp.moved, comp.eventful = true, true
    for _, record in ipairs(stopping.on_record(comp.run, comp.id)) do
      if not TERMINAL[record.status] then
        if budget <= 0 then return 0 end
        budget = budget - 1
        local status = (record.status == 'running' or record.status == 'suspended') and 'terminated' or 'skipped'
        if record.status == 'suspended' then suspension.abandon(record, comp) end
        stopping.take_out(record, comp.stop)
        comp[status] = comp[status] + (fan_out.is_item(record.id) and 0 or 1)
        set(record, 'reason', reason)
        changed(comp, record.status == 'running' and -1 or 0, record, status)
        record.status, record.ended, record.just_ended = status, {stamp}, true
        totals[status] = (totals[status] or 0) + 1
      end
    end
    comp.skipped = comp.nodes - comp.completed - comp.failed - comp.terminated
    comp.open = 0
    comp.node_type = select(11, cmsgpack.unpack(stored(comp, 'facts')))
    component_ended(comp)
  end
end
