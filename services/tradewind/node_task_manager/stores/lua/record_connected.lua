-- Notes which workers are connected to a replica, and which node types they offer.
-- KEYS[1] the replicas. args: base, now, replica, keep (ms; 0: it leaves), whole (whether to drop what it reported
-- before), workers {id, since (0: no longer)}, offered {node types}, withdrawn {node type, the last worker that offered
-- it, until}.
-- Returns whether the report was noted: a partial one is not if the replica has no entry, or an expired one.
local LAST_MS = 24 * 3600 * 1000
local time, key = now(args.now), args.base .. 'connected:' .. args.replica
if args.whole then
  redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', time)
  redis.call('DEL', key)
elseif tonumber(redis.call('ZSCORE', KEYS[1], args.replica) or 0) <= time then
  return cmsgpack.pack(false)
end
if args.keep > 0 then
  redis.call('ZADD', KEYS[1], time + args.keep, args.replica)
  redis.call('PEXPIRE', KEYS[1], args.keep)
else
  redis.call('ZREM', KEYS[1], args.replica)
end
for _, worker in ipairs(args.workers) do
  if worker[2] > 0 then
    redis.call('HSET', key, 'worker:' .. worker[1], worker[2])
  else
    redis.call('HDEL', key, 'worker:' .. worker[1])
  end
end
for _, node_type in ipairs(args.offered) do
  redis.call('HSET', key, 'type:' .. node_type, 1)
  redis.call('DEL', args.base .. 'last_offer:' .. node_type)
end
local others = #args.withdrawn > 0 and redis.call('ZRANGE', KEYS[1], string.format('(%.0f', time), '+inf', 'BYSCORE')
local function offered(node_type)
  for _, replica in ipairs(others) do
    if redis.call('HEXISTS', args.base .. 'connected:' .. replica, 'type:' .. node_type) == 1 then return true end
  end
end
for _, each in ipairs(args.withdrawn) do
  redis.call('HDEL', key, 'type:' .. each[1])
  if not offered(each[1]) then
    redis.call('SET', args.base .. 'last_offer:' .. each[1], each[3] .. ' ' .. each[2], 'PX', LAST_MS)
  end
end
if args.keep > 0 then redis.call('PEXPIRE', key, args.keep) else redis.call('DEL', key) end
return cmsgpack.pack(true)
