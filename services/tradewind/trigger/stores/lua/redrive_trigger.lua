-- Makes a dead trigger or firing due again, and resets its failures.
-- KEYS: 1 due, 2 dead
-- args: now_ms, prefix, channel, queue, policy, id
-- Returns whether it was dead.
--!include record
--!include endings

need_indexes(KEYS[1])
local now_ms = now(args.now_ms)
local t = read(args.prefix .. args.id, args.id, now_ms)
local parent = t and t.event_id ~= '' and parent_of(t, now_ms) or nil
if not t or t.status ~= 'dead' or (t.event_id ~= '' and not parent) then
  return cmsgpack.pack(false)
end
note('ZREM', KEYS[2], t.id)
redis.call('HSET', t.key, 'failures', 0, 'error', '', 'expires', 0)
redis.call('PERSIST', t.key)
if parent then
  redis.call('HINCRBY', parent.key, 'pending', 1)
end
local former = head(KEYS[1])
wake(args.channel, former, queue_up(KEYS[1], t, place_of(t)))
return cmsgpack.pack(true)
