-- Counts the triggers of a queue, or of the flows in a partition.
-- KEYS: 1 due, 2 claimed, 3 dead, 4 all, 5 alarms
-- args: now_ms
-- Returns {scheduled, claimed, dead, triggers, orphans, first = when the next trigger is to be delivered, now}.
--!no-writes
--!include heads

need_indexes(KEYS[1], KEYS[2], KEYS[3], KEYS[4])
return cmsgpack.pack({
  scheduled = redis.call('ZCARD', KEYS[1]), claimed = redis.call('ZCARD', KEYS[2]), dead = redis.call('ZCARD', KEYS[3]),
  triggers = redis.call('ZCARD', KEYS[4]), orphans = tonumber(note('HGET', KEYS[5], 'orphans') or 0),
  first = head(KEYS[1]), now = now(args.now_ms),
})
