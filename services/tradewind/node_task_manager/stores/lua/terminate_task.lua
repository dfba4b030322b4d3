-- Stops one node task: it is skipped if it has not begun, asked to stop if it runs, terminated if it is suspended.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, task_id, component (where its node is),
-- index, reason, by. Returns Effects; results: "" or "unknown".
--!include claim
local comp = component(run_of(args.task_id), args.component)
local record = comp and task(args.task_id)
-- An item that has not begun has no record.
if not comp or not record and fan_out.is_item(args.task_id) then
  effects.results[1] = 'unknown'
  return cmsgpack.pack(effects)
end
if not record then
  record = create(comp, args.task_id, node(comp.plan, args.index), args.index)
  if not comp.early then set_eventful(comp, 'early', 1) end
end
local mark = cmsgpack.pack({reason = args.reason, by = args.by, at = time})
effects.results[1] = ''
if record.status == 'running' then
  stopping.request(record, mark)
elseif not TERMINAL[record.status] then
  set(record, 'stop', mark)
  stopping.end_idle(record, comp, args.reason)
end
return cmsgpack.pack(conclude())
