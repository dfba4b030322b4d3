-- Puts a bulk job on record, or replaces the version that the caller knows.
-- KEYS: 1 owner, 2 hash of the job, 3 index of jobs, 4 index of open jobs.
-- args: base, epoch (0), now, job_id, version (known to the caller, 0 to create it), job (text), payload, created,
--   open, retention (ms).
-- Returns {whether it was written, the job that was on record already (text, "" for none or one with another payload)}.
--!include partition
local MOST = 1000
local known = call('HMGET', KEYS[2], 'version', 'payload', 'job')
if args.version == 0 and known[1] then
  return cmsgpack.pack({false, known[2] == args.payload and known[3] or ''})
end
if tonumber(known[1] or 0) ~= args.version then return cmsgpack.pack({false, ''}) end
call('HSET', KEYS[2], 'version', args.version + 1, 'job', args.job)
if args.version == 0 then
  call('HSET', KEYS[2], 'payload', args.payload)
  call('ZADD', KEYS[3], args.created, args.job_id)
  call('ZADD', KEYS[4], args.created, args.job_id)
  call('ZREMRANGEBYRANK', KEYS[3], 0, -MOST - 1)
end
if not args.open then
  call('ZREM', KEYS[4], args.job_id)
  call('PEXPIRE', KEYS[2], args.retention)
  call('PEXPIRE', KEYS[3], args.retention)
else
  call('PERSIST', KEYS[3])
end
return cmsgpack.pack({true, ''})
