-- Notes the process behind a worker that opens no stream; if it was another one before, all that the worker holds is
-- lost.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, worker_id, incarnation.
-- Returns {effects, more (whether there is more to give back)}.
--!include give_back
local before, more_left = sessions.process_of(args.worker_id), false
if before and before ~= args.incarnation then more_left = give_back_all(args.worker_id, {}, true) end
-- While there is more to give back, the next call must still find the previous process.
if not more_left then sessions.note_process(args.worker_id, args.incarnation) end
return cmsgpack.pack({effects = conclude(), more = more_left})
