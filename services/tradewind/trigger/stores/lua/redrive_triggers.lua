-- Makes dead triggers due again, and resets their failures.
-- KEYS: 1 due, 2 dead
-- args: now_ms, prefix, channel, queue, policy, items = ids
-- Returns the ids that were dead.
--!include record
--!include endings

local now_ms = now(args.now_ms)
local former = head(KEYS[1])
local revived, earliest = {}, nil
for _, id in ipairs(args.items) do
  local t = read(args.prefix .. id, id, now_ms)
  local parent = t and t.event_id ~= '' and parent_of(t, now_ms) or nil
  if t and t.status == 'dead' and (t.event_id == '' or parent) then
    redis.call('ZREM', KEYS[2], id)
    redis.call('HSET', t.key, 'failures', 0, 'error', '', 'expires', 0)
    redis.call('PERSIST', t.key)
    if parent then
      redis.call('HINCRBY', parent.key, 'pending', 1)
    end
    earliest = earlier(earliest, queue_up(KEYS[1], t, place_of(t)))
    revived[#revived + 1] = id
  end
end
wake(args.channel, former, earliest)
return cmsgpack.pack(revived)
