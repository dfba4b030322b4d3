-- Opens the next session of a worker: it keeps the node tasks that it names, and everything else it held is given back.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, worker_id, incarnation, held {task_id,
-- attempt, nonce}, kept {task ids that it names, too, and that later calls renew}.
-- Returns {session, lost {nonces}, effects, same (whether the incarnation is the previous one), more (whether there is
-- more to give back)}.
--!include leases
--!include give_back
local session, same = sessions.open(args.worker_id), sessions.process_of(args.worker_id) == args.incarnation
sessions.note_process(args.worker_id, args.incarnation)
put('to_clean', 'worker:' .. args.worker_id, time + limits.silent_ms)
local kept, lost = set_of(args.kept), {}
for _, held in ipairs(args.held) do
  local record = task(held.task_id)
  if holds_lease(record, held.nonce) then
    kept[held.task_id] = true
    extend(record, true)
  elseif loss_reason(record, held) then
    lost[#lost + 1] = held.nonce
  end
end
local more_left = give_back_all(args.worker_id, kept, not same)
return cmsgpack.pack({session = session, lost = lost, effects = conclude(), same = same, more = more_left})
