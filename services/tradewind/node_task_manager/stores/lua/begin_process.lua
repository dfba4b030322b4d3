-- Notes which process is behind a worker that opens no stream; when another one was, all that the worker holds is lost.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, worker_id, incarnation.
-- Returns {effects, more (whether there is more to give back)}.
--!include give_back
local key = base .. 'worker_incarnation:' .. args.worker_id
local before, more_left = call('GET', key), false
if before and before ~= args.incarnation then more_left = give_back_all(args.worker_id, {}, true) end
-- While there is more, the next call must find the one before.
if not more_left then call('SET', key, args.incarnation, 'PX', limits.run_retention) end
return cmsgpack.pack({effects = conclude(), more = more_left})
