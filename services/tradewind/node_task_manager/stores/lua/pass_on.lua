-- Hands a node task from a worker that did not take it to another one, as the same attempt under a new nonce: if the
-- first worker runs it after all, nothing that it reports counts. The clocks of the attempt begin anew.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies (empty), worker_id, held {task_id, attempt,
-- nonce}, to (the other worker). Returns Effects: the assignment, or nothing when the lease is no longer held or the
-- node task is to stop.
--!include leases
local record = task(args.held.task_id)
local comp = holds_lease(record, args.held.nonce) and record.worker_id == args.worker_id and not record.stop
  and component_of(record)
local entry = comp and node(comp.plan, record.index)
if entry and not entry.lost then
  remove('worker_tasks:' .. args.worker_id, record.id)
  set_state(record, 'worker_id', args.to)
  set_state(record, 'nonce', assignments.tag_of(comp.run_id) .. args.nonce .. '0')
  note(record, 'progress', 0)
  note(record, 'message', '')
  note(record, 'step', '')
  local started_at, close_at, deadline = clocks.begin(record, entry, comp, record.attempt)
  set_state(record, 'started_at', started_at)
  set_state(record, 'close_at', close_at)
  leasing.begin(record, deadline)
  changed(comp, 0, record, 'running')
  assignments.add(record, comp, entry, close_at, 0)
end
write_all()
write_changed()
return cmsgpack.pack(effects)
