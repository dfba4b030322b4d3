-- Takes back what a worker holds: the named node tasks, or all if its stream is gone and no later one was opened.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, worker_id, session (0: any), held {task_id,
-- attempt, nonce} or nil for all except `kept` {task ids}, lost (whether the worker was lost).
-- Returns {effects, more (whether there is more to give back)}; results: one word, "given_back" or "replaced".
--!include give_back
local more_left = false
if not sessions.is_latest(args.worker_id, args.session) then
  effects.results[1] = 'replaced'
else
  effects.results[1] = 'given_back'
  if args.held then
    for _, held in ipairs(args.held) do
      local record = task(held.task_id)
      if holds_lease(record, held.nonce) then give_back(record, false) end
    end
  else
    more_left = give_back_all(args.worker_id, set_of(args.kept), args.lost)
  end
end
return cmsgpack.pack({effects = conclude(), more = more_left})
