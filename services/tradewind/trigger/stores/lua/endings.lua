-- Ends claims that were not acknowledged, and triggers that will not fire again.
--!include record
--!include heads

-- Ends a trigger that will not fire again; it is kept for the retention.
local function finish(t, status, now_ms)
  redis.call('HSET', t.key, 'status', status, 'token', '', 'expires', now_ms + args.policy.retention_ms)
  redis.call('PEXPIRE', t.key, args.policy.retention_ms)
end

-- Adds a line to the fire history.
local function add_firing(firings, t, outcome, now_ms, message)
  note('XADD', firings, 'MAXLEN', args.policy.firings_kept, '*', 'trigger_id', t.id, 'planned', t.planned, 'attempt',
    t.attempt, 'outcome', outcome, 'at', now_ms, 'error', message or '', 'event_id', t.event_id)
end

-- Adds a trigger that has died to the list of such triggers, and removes those that it has no room for.
local function list_dead(dead, t, now_ms)
  if not note('ZADD', dead, now_ms, t.id) then return end
  redis.call('ZREMRANGEBYSCORE', dead, '-inf', now_ms - args.policy.retention_ms)
  local surplus = redis.call('ZCARD', dead) - args.policy.dead_kept
  if surplus > 0 then
    for _, id in ipairs(redis.call('ZRANGE', dead, 0, math.min(surplus, 100) - 1)) do
      redis.call('DEL', args.prefix .. id)
      note('ZREM', args.all, id)
      redis.call('ZREM', dead, id)
    end
  end
end

-- Adds a trigger to the `due` index, unless it is paused. Returns its place there, or nil.
local function queue_up(due, t, place)
  if t.paused then
    redis.call('HSET', t.key, 'status', 'paused', 'token', '', 'planned', t.planned)
    return nil
  end
  redis.call('HSET', t.key, 'status', 'scheduled', 'token', '', 'planned', t.planned)
  redis.call('ZADD', due, place, t.id)
  return place
end

-- Takes an ended firing off its trigger's count of pending firings. Returns the trigger, nil when it is gone.
local function uncount_pending(firing, now_ms)
  local parent = parent_of(firing, now_ms)
  if parent and parent.pending > 0 then
    redis.call('HINCRBY', parent.key, 'pending', -1)
  end
  return parent
end

-- Ends the claim of a trigger that failed or was postponed; only a failure counts. Returns its new place in `due`, nil
-- when it is not there, and whether it is dead.
local function fail(due, claimed, dead, firings, t, message, delay_ms, now_ms, postponed)
  redis.call('ZREM', claimed, t.id)
  t.failures = t.failures + (postponed and 0 or 1)
  redis.call('HSET', t.key, 'failures', t.failures, 'error', message)
  if not postponed and t.failures >= args.policy.max_failures then
    finish(t, 'dead', now_ms)
    add_firing(firings, t, 'dead', now_ms, message)
    if t.event_id ~= '' then
      uncount_pending(t, now_ms)
    end
    list_dead(dead, t, now_ms)
    return nil, true
  end
  return queue_up(due, t, delay_ms > 0 and now_ms + delay_ms or place_of(t))
end

local function backoff(failures)
  if failures < 1 then
    return 0
  end
  return math.min(args.policy.backoff_max_ms, args.policy.backoff_initial_ms * 2 ^ math.min(failures - 1, 40))
end
