-- Removes a trigger in any status, and remembers the epoch.
-- KEYS: 1 the trigger's hash, 2 its tombstone, 3 due, 4 claimed, 5 dead, 6 all of the queue
-- args: now_ms, id, epoch, queue, events (beginning of keys), policy
-- Returns {known = newer epoch} or {removed = whether the trigger existed}.
--!include record
--!include kinds
--!include tombstone

local now_ms = now(args.now_ms)
local t = read(KEYS[1], args.id, now_ms)
local known = t and t.epoch or buried_epoch(KEYS[2], now_ms)
if known and args.epoch < known then
  return cmsgpack.pack({ known = known })
end
redis.call('DEL', KEYS[1])
for index = 3, 6 do
  note('ZREM', KEYS[index], args.id)
end
if t and t.event ~= '' then
  redis.call('HDEL', args.events .. t.event, args.queue .. '/' .. t.id)
end
bury_epoch(KEYS[2], args.epoch, now_ms, args.policy.tombstone_ms)
return cmsgpack.pack({ removed = t ~= nil })
