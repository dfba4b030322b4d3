-- Notes the process behind a worker that opens no stream; if it was another one before, all that the worker holds is
-- lost.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, worker_id, incarnation.
-- Returns {effects, more (whether there is more to give back)}.
--!include give_back
local key = base .. 'worker_incarnation:' .. args.worker_id
local before, more_left = call('GET', key), false
if before and before ~= args.incarnation then more_left = give_back_all(args.worker_id, {}, true) end
-- While there is more to give back, the next call must still find the previous process.
if not more_left then call('SET', key, args.incarnation, 'PX', limits.run_retention_ms) end
return cmsgpack.pack({effects = conclude(), more = more_left})
