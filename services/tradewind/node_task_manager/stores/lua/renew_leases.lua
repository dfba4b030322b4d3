-- Renews the leases that a worker names, reports those it has lost, repeats stops, and sends again what it was given a
-- while ago and does not name.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies (empty), worker_id, session (0: any), held
-- {task_id, attempt, nonce}, named {further task ids} or nil when nothing is to be sent again, back (whether the worker
-- is back after it was away).
-- Returns {session_current, lost {[nonce, why]}, lease_deadline, effects}.
--!include leases
local RESENT = 500
local lost, named, current = {}, {}, sessions.is_latest(args.worker_id, args.session)
put('to_clean', 'worker:' .. args.worker_id, time + limits.silent_ms)
if current then
  for _, held in ipairs(args.held) do
    local record = task(held.task_id)
    if holds_lease(record, held.nonce) then
      named[held.task_id] = true
      extend(record, args.back)
    else
      local reason = loss_reason(record, held)
      if reason then lost[#lost + 1] = {held.nonce, reason} end
    end
  end
end
if current and args.session ~= 0 and args.named then
  sessions.keep(args.worker_id)
  for _, id in ipairs(args.named) do named[id] = true end
  for _, id in ipairs(index_call('ZRANGE', base .. 'worker_tasks:' .. args.worker_id, 0, -1)) do
    local record = not named[id] and task(id)
    if record == false and not named[id] then
      remove('worker_tasks:' .. args.worker_id, id)
    elseif record and record.status == 'running' and record.worker_id == args.worker_id and not record.stop
      and tonumber(record.started_at) + limits.unnamed_ms <= time then
      local comp = component_of(record)
      local entry = comp and node(comp.plan, record.index)
      if entry and not entry.lost then assignments.add(record, comp, entry, record.close_at or 0, 0) end
    end
    if #effects.assignments == RESENT then break end
  end
end
write_all()
return cmsgpack.pack({session_current = current, lost = lost, lease_deadline = time + limits.lease_ms,
  effects = effects})
