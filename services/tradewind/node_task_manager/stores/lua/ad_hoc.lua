--!include task_events
--!include notifications
-- Runs outside any flow, which are ad-hoc tasks and batches: counts their running nodes and notifies those who watch
-- them.
local NO_PARTITION = -1
local changed, write_changed
do
  local running, touched, events = {}, {}, {}
  fresh(function()
    if next(touched) then running, touched = {}, {} end
    if #events > 0 then events = {} end
  end)

  -- Notes that a run has changed, and that `more` of its nodes run. Changes of a batch are published at most ten times
  -- a second, and its end always, so whoever was notified checks again a little later. What happens (`kind`) to the
  -- node task of an ad-hoc task, or to a watched node task of a flow, is an event and is published at once.
  function changed(comp, more, record, kind)
    if comp.partition ~= NO_PARTITION and not comp.watched then return end
    local is_event = kind and comp.watched and task_events.watched(comp, record.id)
    if comp.partition == NO_PARTITION then
      touched[comp] = touched[comp] or 'seldom'
      running[comp] = (running[comp] or 0) + more
      is_event = kind and record.id == comp.run
      if is_event then touched[comp] = 'now' end
    end
    if is_event then
      local is_waiting = kind == 'retrying' or kind == 'waiting' or kind == 'suspended'
      local has_error = kind == 'retrying' or kind == 'failed'
      events[#events + 1] = {comp, record.id, {kind = kind, at = time, attempt = record.attempt or 0,
        worker_id = record.worker_id or nil, reason = record.reason or nil,
        retry_at = is_waiting and record.retry_at or nil,
        stop = kind == 'stopping' and cmsgpack.unpack(record.stop) or nil}, has_error and record.error}
    end
  end

  function write_changed()
    local NOTIFY_MS = 100
    if not next(touched) and #events == 0 then return notices.publish() end
    for comp, more in pairs(running) do
      if more ~= 0 then call('HINCRBY', comp.key, comp.at .. 'running', more) end
    end
    for _, each in ipairs(events) do
      local comp, id, event = each[1], each[2], each[3]
      if each[4] then
        local error = cmsgpack.unpack(each[4])
        event.error = {code = error.code, message = notices.brief(error.message), type = error.type,
          final = error.final}
      end
      task_events.add(id, event, TERMINAL[event.kind])
      if comp.partition ~= NO_PARTITION then call('PUBLISH', base .. 'wake', 'r:' .. id) end
    end
    for comp, how in pairs(touched) do
      if comp.status == 'finished' then
        call('PUBLISH', base .. 'wake', 'f:' .. comp.run)
      elseif how == 'now' or call('SET', base .. 'told:' .. comp.run, '', 'NX', 'PX', NOTIFY_MS) then
        call('PUBLISH', base .. 'wake', 'r:' .. comp.run)
      end
    end
    notices.publish()
  end
end

-- Notifies the user, once, of the end of a task or a whole batch.
local function end_ad_hoc(comp, node_type)
  local record, fact = records[comp.run], {subject = comp.run, node_type = node_type}
  if not record then
    fact.kind, fact.stopped = 'batch_finished', comp.stop and true or nil
    fact.total, fact.completed, fact.failed, fact.cancelled = comp.nodes, comp.completed, comp.failed,
      comp.terminated + comp.skipped
  elseif record.status == 'completed' then
    fact.kind = 'task_completed'
  elseif record.status == 'failed' then
    local error = cmsgpack.unpack(record.error)
    fact.kind, fact.code, fact.message, fact.given_up = 'task_failed', error.code, notices.brief_error(error),
      record.given_up
  else
    fact.kind, fact.message = 'task_cancelled', notices.brief(record.reason)
  end
  notices.notify(comp.user_id, fact)
end
