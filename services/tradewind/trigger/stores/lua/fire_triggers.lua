-- Makes one firing of each given trigger for an event.
-- KEYS: 1 any key of the partition
-- args: now_ms, base (beginning of the partition's keys), channel, policy, event = {id, name, payload}, by_hand,
--   items = {{queue, trigger id, id of the firing, start of its window in ms or 0}}
-- An item that fails keeps no other from firing.
-- Returns per item 'fired', 'duplicate', 'full' or 'gone'.
--!include record
--!include endings
--!include tombstone

local now_ms = now(args.now_ms)

-- Whether a trigger takes the event now; a trigger fired by hand need not listen to it.
local function accepts(t, start)
  if args.by_hand then
    return true
  end
  return t.status == 'waiting' and t.event == args.event[2]
    and now_ms >= start and now_ms <= t.last
    and (t.most == 0 or t.fired + t.pending < t.most)
end

local function fire(queue, id, firing, start)
  -- `wake` names the queue of the args, and the items of one event may be of several queues.
  args.queue = queue
  local lane = args.base .. (queue ~= '' and 'queue:' .. queue .. ':' or '')
  local prefix = lane .. 'trigger:'
  local due = lane .. 'triggers:due'
  need_indexes(due)
  local t = read(prefix .. id, id, now_ms)
  if not t then
    return 'gone'
  end
  if read(prefix .. firing, firing, now_ms) or buried_epoch(lane .. 'removed_triggers:' .. firing, now_ms) then
    return 'duplicate'
  end
  if not accepts(t, start) then
    return 'gone'
  end
  if t.pending >= args.policy.max_pending then
    redis.call('HINCRBY', t.key, 'dropped', 1)
    return 'full'
  end
  redis.call('HINCRBY', t.key, 'pending', 1)
  local planned = now_ms
  if t.event ~= '' then
    -- Each firing of a trigger has a planned time of its own, which names the firing.
    planned = math.max(now_ms, t.planned + 1)
    redis.call('HSET', t.key, 'planned', planned)
  end
  local record = { key = prefix .. firing, id = firing, planned = planned, jitter = args.by_hand and 0 or t.jitter }
  -- Of a dead firing of this name, whose retention has passed, nothing is left but perhaps its place in the index.
  redis.call('DEL', record.key)
  note('ZREM', lane .. 'triggers:dead', firing)
  redis.call('HSET', record.key, 'partition_key', t.partition_key, 'interval', 0, 'anchor', planned, 'payload',
    args.event[3], 'epoch', t.epoch, 'status', 'scheduled', 'planned', planned, 'failures', 0, 'error', '', 'revision',
    1, 'created', now_ms, 'expires', 0, 'token', '', 'attempt', 0, 'jitter', 0, 'event', args.event[2], 'event_id',
    args.event[1], 'born', t.created)
  local former = head(due)
  wake(args.channel, former, queue_up(due, record, place_of(record)))
  return 'fired'
end

local outcomes, problem = {}, nil
for at, item in ipairs(args.items) do
  local fired, outcome = pcall(fire, item[1], item[2], item[3], item[4])
  outcomes[at] = outcome
  problem = problem or not fired and outcome
end
if problem then error(problem) end
return cmsgpack.pack(outcomes)
