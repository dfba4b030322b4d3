--!include budget
--!include dead_letters
--!include fan_out
--!include clocks
--!include logs
-- Node tasks that wait for a signal or a time, without a worker: the field `wait` of their record says for what, and
-- they are in `delayed` if a time ends the wait. Signals that come before a node task waits are kept in a field of its
-- own, even before it has a record.
do
  local function kept_in(comp, id) return comp.key, place_of(id, comp.run) .. 'signals' end

  -- Takes the first signal of a name that came before the node task waited; returns it, or nil.
  local function pop_kept(record, comp, name)
    local run, field = kept_in(comp, record.id)
    local text = call('HGET', run, field)
    local kept = text and cmsgpack.unpack(text) or {}
    for at, signal in ipairs(kept) do
      if signal.signal == name then
        table.remove(kept, at)
        call('HINCRBY', run, 'kept', -1)
        if #kept == 0 then call('HDEL', run, field) else call('HSET', run, field, cmsgpack.pack(kept)) end
        return signal
      end
    end
  end

  -- Keeps a signal for a node task that does not wait; returns false when too many are kept.
  function suspension.keep(comp, id, signal, most, max_of_run)
    local run, field = kept_in(comp, id)
    local text = call('HGET', run, field)
    local kept = text and cmsgpack.unpack(text) or {}
    if #kept >= most or tonumber(call('HGET', run, 'kept') or 0) >= max_of_run then return false end
    kept[#kept + 1] = signal
    call('HSET', run, field, cmsgpack.pack(kept))
    call('HINCRBY', run, 'kept', 1)
    return true
  end

  local function flow_of(entry) return entry.wait and entry.wait.flow_id or '' end

  -- Notifies the scheduler that a node task waits for a cycle of another flow, or that nobody waits for `child` any
  -- more.
  local function notify_scheduler(record, comp, child)
    scheduler.add_event(comp.partition, 'sub_flow', {time, comp.run, comp.run_id, record.id, comp.user_id, child})
  end

  -- Notifies the scheduler if a suspended node task ends before the cycle that it waits for.
  function suspension.abandon(record, comp)
    local child = stored(record, 'child')
    if child and child ~= '' then notify_scheduler(record, comp, child) end
  end

  function suspension.of(record) return cmsgpack.unpack(record.wait or stored(record, 'wait')) end

  -- Ends a wait; `resumed` is the signal or time that ended it, if any. With a handle, the node task emits `value` by
  -- it and is completed; without one, it runs again.
  function suspension.resume(record, comp, resumed, handle, value)
    undelay(record)
    if resumed then set(record, 'resumed', cmsgpack.pack(resumed)) end
    if handle ~= '' then
      emit(record, {{handle, value}})
      return finish(record, comp, 'completed')
    end
    record.status = 'pending'
    enqueue(record, comp)
  end

  -- Begins a wait; if the node task ran, the caller has released its lease.
  function suspension.begin(record, comp, wait)
    local entry, ran = node(comp.plan, record.index), record.status == 'running' and -1 or 0
    if wait.after_ms >= 0 then wait.till = time + wait.after_ms end
    wait.after_ms, wait.since, wait.sources = -1, time, nil
    record.status, record.comp = 'suspended', comp
    set(record, 'wait', cmsgpack.pack(wait))
    local till = wait.till > 0 and wait.till or HUGE
    if entry.total then till = math.min(till, tonumber(read_rest(record).total_at)) end
    set(record, 'retry_at', till < HUGE and math.max(till, time + 1) or 0)
    changed(comp, ran, record, 'suspended')
    local early = wait.signal ~= '' and wait.form == '' and pop_kept(record, comp, wait.signal)
    if early then return suspension.resume(record, comp, early, wait.completes, early.payload) end
    if record.retry_at > 0 then delaying[#delaying + 1] = record end
    if wait.form ~= '' then
      notices.notify(comp.user_id, {kind = 'answer_wanted', subject = record.id, node_type = entry.type,
        message = wait.title})
    end
  end

  -- Returns the value of the first live edge into a node, or null.
  local function passed_value(record, comp, entry)
    for _, source in ipairs(entry.wait.sources) do
      local edge, node_id, handle = unpack(source)
      local field = field_of(entry, edge)
      local value = record[field] or stored(record, field)
      if value == '@' then
        local from = task(task_of(comp.run, node_id))
        value = from and (from['out:' .. handle] or stored(from, 'out:' .. handle))
        -- A result that a rerun took over is in the record that worked it out.
        if value == '@' then
          local kept = task(stored(from, 'kept'))
          value = kept and stored(kept, 'out:' .. handle)
        end
      end
      if value then return value end
    end
    return 'null'
  end

  -- Fails a node task that has waited too long, for a worker or for something else; no attempt follows.
  function suspension.time_out(record, comp, code, message)
    set_state(record, 'nonce', '')
    local error = {code = code, message = message}
    logs.add_error(record, error)
    if node(comp.plan, record.index).retry then
      error.final = code .. ' is not retried'
      dead_letters.bury(record, comp, error)
    end
    fail(record, comp, error)
  end

  -- Fails a node task whose total time ended while it waited, but not in a queue.
  function suspension.end_total_time(record, comp, entry)
    suspension.time_out(record, comp, 'TOTAL_TIMEOUT', 'it was still waiting when the total time of '
      .. clocks.duration_text(entry.total) .. ' ended')
  end

  -- Ends a wait whose time has come.
  local function due(record, comp, entry)
    -- If the component is being stopped, the stop reaches this node task as well.
    if comp.stop then return end
    if entry.total and tonumber(read_rest(record).total_at) <= time then
      suspension.abandon(record, comp)
      return suspension.end_total_time(record, comp, entry)
    end
    local wait, resumed = suspension.of(record), {at = time, signal = '', payload = 'null', by = ''}
    if wait.late_error ~= '' then return suspension.time_out(record, comp, 'WAIT_TIMEOUT', wait.late_error) end
    local handle, value = wait.completes, 'null'
    if wait.late then handle, value = wait.late[1], wait.late[2] end
    if wait.passes then value = passed_value(record, comp, entry) end
    suspension.resume(record, comp, resumed, handle, value)
  end

  -- Begins the wait of a ready node that needs no worker, or ends a suspended one whose time has come. If the cycle is
  -- due in a moment, the node is pending until then: no worker holds it back.
  function suspension.ready(record, comp, entry)
    if record.status == 'suspended' then return due(record, comp, entry) end
    local early = not record.ready_at and clocks.due_at(comp)
    set_state(record, 'ready_at', stamp)
    if early then
      changed(comp, 0, record, 'queued')
      record.status, record.comp = 'pending', comp
      set(record, 'retry_at', early)
      delaying[#delaying + 1] = record
      return
    end
    set_state(record, 'started_at', stamp)
    if entry.total and not read_rest(record).total_at then
      set(record, 'total_at', (clocks.due_at(comp) or time) + entry.total)
    end
    local wait = {}
    for name, value in pairs(entry.wait) do wait[name] = value end
    if flow_of(entry) ~= '' then
      set_state(record, 'attempt', (record.attempt or 0) + 1)
      set_state(record, 'nonce', '')
      note(record, 'child', '')
      if entry.retry then retry_budget.count(comp) end
      notify_scheduler(record, comp, '')
    end
    suspension.begin(record, comp, wait)
  end
end
