-- Stores what running node tasks report: progress, which is also a sign of life, and log lines. Reports of attempts
-- without a lease are ignored, but log lines of an attempt that has just failed or was suspended are still kept.
-- KEYS[1] any key of the shard. args: base, now, limits, progress {task_id, nonce, progress, message, step}, lines
-- {task_id, attempt, nonce, level, source, message, at}. Returns the number of entries kept.
--!include clocks
--!include logs
--!include task_events
local kept, events = 0, {}
-- Whether events of a node task are kept: it is an ad-hoc task, or a watched node task of a flow.
local function keeps_events(record)
  if run_of(record.id) == record.id then return true end
  local comp = component_of(record)
  return comp and task_events.watched(comp, record.id)
end

for _, entry in ipairs(args.progress) do
  local record = task(entry.task_id)
  if holds_lease(record, entry.nonce) then
    kept = kept + 1
    local before = stored_all(record, {'progress', 'beat'})
    if before[2] then clocks.note_heartbeat(record, tonumber(before[2])) end
    if (record.progress or tonumber(before[1] or 0)) <= entry.progress then
      set(record, 'progress', entry.progress)
      note(record, 'message', entry.message)
      note(record, 'step', entry.step)
      if keeps_events(record) then
        events[entry.task_id] = {kind = 'progress', at = time, attempt = record.attempt, worker_id = record.worker_id,
          progress = entry.progress, message = entry.message, step = entry.step}
      end
    end
  end
end

for id, event in pairs(events) do
  task_events.add(id, event)
  call('PUBLISH', base .. 'wake', 'r:' .. id)
end

for _, line in ipairs(args.lines) do
  local record = task(line.task_id)
  if record and (record.nonce == line.nonce or read_rest(record).settled == line.nonce) then
    kept = kept + 1
    -- A worker whose clock differs from the store's may report a time before the attempt began, or in the future.
    local at = line.at
    if at > time or at < (tonumber(record.started_at) or 0) then at = time end
    logs.add(line.task_id, line, at)
  end
end
write_all()
return cmsgpack.pack(kept)
