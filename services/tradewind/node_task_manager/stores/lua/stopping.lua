--!include release
-- Stops: a stop is noted at the component or node task that it is meant for, and then reaches every node.
do
  stopping.PLAN_LOST = 'the store has lost the plan of this run'

  -- Packs the mark of a stop that the system asks for.
  function stopping.system_mark(reason) return cmsgpack.pack({reason = reason, by = 'system', at = time}) end

  function stopping.add_termination(record, mark)
    effects.terminations = effects.terminations or {}
    table.insert(effects.terminations, {worker_id = record.worker_id, task_id = record.id, attempt = record.attempt,
      nonce = record.nonce, stop = cmsgpack.unpack(mark)})
  end

  -- Asks a node task that runs to stop.
  function stopping.request(record, mark)
    -- A node task that runs without a worker is a mapped node's.
    if not record.worker_id then return fan_out.stop(record, mark) end
    if record.stop then return end
    set(record, 'stop', mark)
    put('inflight', record.id, time + limits.stop_grace_ms)
    stopping.add_termination(record, mark)
    local comp = component_of(record)
    if comp then changed(comp, 0, record, 'stopping') end
  end

  -- Ends a node task that no worker has: it is terminated if it is suspended, else skipped.
  function stopping.end_idle(record, comp, reason)
    local status = record.status == 'suspended' and 'terminated' or 'skipped'
    if status == 'terminated' then suspension.abandon(record, comp) end
    if record.status ~= 'registered' then dequeue(record, comp) end
    finish(record, comp, status, reason)
  end

  function stopping.component(comp, mark)
    if comp.stop or comp.status == 'finished' then return end
    set_eventful(comp, 'stop', mark)
    changed(comp, 0)
    if comp.early ~= 'keep' then later('stop', comp, 0, 0) end
  end

  -- Stops the nodes of a component from a place on.
  function WORK.stop(comp, offset)
    if comp.open == 0 then return end
    if not stored_plans.has(comp.plan) then return stopping.without_plan(comp) end
    local reason = cmsgpack.unpack(comp.stop).reason
    local ids, before
    for place = offset, comp.nodes - 1 do
      if budget <= 0 then return place end
      budget = budget - 1
      if not ids or place % PIECE == 0 then ids, before = piece_of(comp.plan, 'ids', place) end
      local id = task_of(comp.run, ids[place - before])
      local record = task(id) or create(comp, id, node(comp.plan, place), place)
      if record.status == 'running' then
        stopping.request(record, comp.stop)
      elseif not TERMINAL[record.status] then
        stopping.end_idle(record, comp, reason)
      end
    end
  end
end
