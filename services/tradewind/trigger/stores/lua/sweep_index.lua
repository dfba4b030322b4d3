-- Sweeps a part of an index: removes entries without a trigger, and adds missing ones. A queue that is left without any
-- trigger is forgotten, its history after the retention.
-- KEYS: 1 the index, 2 due, 3 claimed, 4 alarms, 5 dead, 6 all of the queue, 7 firings, 8 queues
-- args: now_ms, prefix, index ('due', 'claimed', 'dead' or 'all'), queue, events (beginning of keys), first (a rank),
--   limit, policy
-- Returns {seen, orphans and mended = ids, kept = how many of the entries seen are still there}.
--!include record
--!include kinds

need_indexes(KEYS[1], KEYS[2], KEYS[3])
local now_ms = now(args.now_ms)
local expected = { due = 'scheduled', claimed = 'claimed', dead = 'dead' }
local seen, kept, orphans, mended = 0, 0, {}, {}

-- Adds a trigger to the index that its status requires, if it is missing there.
local function mend(t)
  local missing = false
  if t.status == 'scheduled' then
    missing = redis.call('ZADD', KEYS[2], 'NX', place_of(t), t.id) == 1
  elseif t.status == 'claimed' then
    missing = redis.call('ZADD', KEYS[3], 'NX', now_ms, t.id) == 1
  elseif t.event ~= '' and (t.status == 'waiting' or t.status == 'paused') then
    missing = redis.call('HSETNX', args.events .. t.event, args.queue .. '/' .. t.id, t.spec) == 1
  end
  if missing then
    mended[#mended + 1] = t.id
  end
end

for _, id in ipairs(redis.call('ZRANGE', KEYS[1], args.first, args.first + args.limit - 1)) do
  seen = seen + 1
  local t = read(args.prefix .. id, id, now_ms)
  local removed = t and t.event_id ~= '' and not parent_of(t, now_ms)
  if removed then
    redis.call('DEL', t.key)
  end
  if not t or removed or (args.index ~= 'all' and t.status ~= expected[args.index]) then
    redis.call('ZREM', KEYS[1], id)
    -- The record of an ended trigger expires before its index entry: that is no loss.
    if not t and (args.index == 'due' or args.index == 'claimed') then
      orphans[#orphans + 1] = id
    end
  else
    kept = kept + 1
    if args.index == 'all' then
      mend(t)
    end
  end
end
if #orphans > 0 then
  note('HINCRBY', KEYS[4], 'orphans', #orphans)
end
if args.queue ~= '' and redis.call('EXISTS', KEYS[2], KEYS[3], KEYS[5], KEYS[6]) == 0
  and redis.call('SREM', KEYS[8], args.queue) == 1 then
  redis.call('DEL', KEYS[4])
  redis.call('PEXPIRE', KEYS[7], args.policy.retention_ms)
end
return cmsgpack.pack({ seen = seen, kept = kept, orphans = orphans, mended = mended })
