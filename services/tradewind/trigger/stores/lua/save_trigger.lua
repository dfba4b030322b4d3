-- Creates or replaces a trigger.
-- KEYS: 1 the trigger's hash, 2 its tombstone, 3 due, 4 claimed, 5 dead, 6 all of the queue, 7 queues, 8 firings
-- args: now_ms, id, partition_key, interval, anchor, spec, payload, epoch, channel, queue, events (beginning of keys),
--   event (name of the event it fires for, or ''), policy, jitter, last and most of the schedule, first (planned time;
--   absent: all have passed)
-- Returns {known = newer epoch}, {full = the cap that is reached} or {trigger = record}.
--!include record
--!include endings
--!include tombstone

need_indexes(KEYS[3], KEYS[4], KEYS[6])
local CHECKED_AT_ONCE = 100
local now_ms = now(args.now_ms)
local t = read(KEYS[1], args.id, now_ms)
local known = t and t.epoch or buried_epoch(KEYS[2], now_ms)
if known and args.epoch < known then
  return cmsgpack.pack({ known = known })
end

local same_schedule = t and t.interval == args.interval and t.anchor == args.anchor and t.spec == args.spec
if same_schedule and t.epoch == args.epoch and listens(t) then
  -- A claim stays valid: neither the schedule nor the epoch has changed.
  if t.partition_key ~= args.partition_key or t.payload ~= args.payload then
    t.partition_key, t.payload, t.revision = args.partition_key, args.payload, t.revision + 1
    redis.call('HSET', KEYS[1], 'partition_key', t.partition_key, 'payload', t.payload, 'revision', t.revision)
  end
  return cmsgpack.pack({ trigger = reply(t) })
end

-- Whether the queue is full, even after dropping those of the oldest triggers whose retention has passed.
local function is_full()
  if redis.call('ZCARD', KEYS[6]) < args.policy.max_queue_triggers then
    return false
  end
  local prefix = string.sub(KEYS[1], 1, -#args.id - 1)
  for _, id in ipairs(redis.call('ZRANGE', KEYS[6], 0, CHECKED_AT_ONCE - 1)) do
    if not read(prefix .. id, id, now_ms) then
      redis.call('ZREM', KEYS[6], id)
    end
  end
  return redis.call('ZCARD', KEYS[6]) >= args.policy.max_queue_triggers
end

if args.queue ~= '' then
  if not t and is_full() then
    return cmsgpack.pack({ full = 'queue' })
  end
  -- One that has completed does not listen any more.
  if args.event ~= '' and redis.call('HEXISTS', args.events .. args.event, args.queue .. '/' .. args.id) == 0
    and redis.call('HLEN', args.events .. args.event) >= args.policy.max_listeners then
    return cmsgpack.pack({ full = 'event' })
  end
  if not t then
    redis.call('ZADD', KEYS[6], now_ms, args.id)
    if redis.call('SADD', KEYS[7], args.queue) == 1 then
      redis.call('PERSIST', KEYS[8])
    end
  end
end

-- With the same schedule the grid goes on, so that no planned time is delivered twice. A completed trigger starts over.
local planned, fired = args.first, 0
if same_schedule and t.status ~= 'completed' then
  planned, fired = t.planned, t.fired
end
local saved = {
  key = KEYS[1], id = args.id, partition_key = args.partition_key, interval = args.interval, anchor = args.anchor,
  spec = args.spec, payload = args.payload, epoch = args.epoch, status = 'scheduled', planned = planned or 0,
  failures = 0, error = '', revision = (t and t.revision or 0) + 1, created = t and t.created or now_ms,
  fired = fired, jitter = args.jitter, paused = t ~= nil and t.paused and t.epoch == args.epoch,
  pending = t and t.pending or 0, dropped = t and t.dropped or 0, event = args.event, event_id = '',
}
saved.note = saved.paused and t.note or ''
redis.call('DEL', KEYS[2])
redis.call('HSET', KEYS[1], 'partition_key', saved.partition_key, 'interval', saved.interval, 'anchor', saved.anchor,
  'spec', saved.spec, 'jitter', saved.jitter, 'last', args.last, 'most', args.most, 'fired', saved.fired,
  'paused', saved.paused and '1' or '0', 'note', saved.note, 'event', saved.event,
  'pending', saved.pending, 'dropped', saved.dropped,
  'payload', saved.payload, 'epoch', saved.epoch, 'status', saved.status, 'planned', saved.planned, 'failures', 0,
  'error', '', 'revision', saved.revision, 'created', saved.created, 'expires', 0, 'token', '',
  'attempt', t and t.attempt or 0)
redis.call('PERSIST', KEYS[1])
redis.call('ZREM', KEYS[4], args.id)
note('ZREM', KEYS[5], args.id)
if t and t.event ~= '' and t.event ~= args.event then
  redis.call('HDEL', args.events .. t.event, args.queue .. '/' .. args.id)
end
local former = head(KEYS[3])
redis.call('ZREM', KEYS[3], args.id)
if args.event ~= '' then
  if redis.call('HSET', args.events .. args.event, args.queue .. '/' .. args.id, args.spec) == 1 then
    redis.call('PUBLISH', args.channel, 'listener ' .. args.event)
  end
  saved.status, saved.planned = saved.paused and 'paused' or 'waiting', t and t.event ~= '' and t.planned or 0
  redis.call('HSET', KEYS[1], 'status', saved.status, 'planned', saved.planned)
  return cmsgpack.pack({ trigger = reply(saved) })
end
if not planned then
  saved.status = 'completed'
  finish(saved, 'completed', now_ms)
  return cmsgpack.pack({ trigger = reply(saved) })
end
local place = queue_up(KEYS[3], saved, place_of(saved))
saved.status = place and 'scheduled' or 'paused'
wake(args.channel, former, place)
return cmsgpack.pack({ trigger = reply(saved) })
