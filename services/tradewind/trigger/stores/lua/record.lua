-- The hash of a trigger, as every script of this folder reads and returns it.
local function read(key, id, now_ms)
  -- pcall: a key that is not a hash must not stop the whole partition; to the caller there is no trigger.
  local raw = redis.pcall('HMGET', key, 'partition_key', 'interval', 'anchor', 'payload', 'epoch', 'status', 'planned',
    'failures', 'error', 'revision', 'created', 'expires', 'token', 'attempt', 'spec', 'fired', 'jitter', 'last',
    'most', 'paused', 'note', 'pending', 'dropped', 'event', 'event_id', 'born')
  if raw.err or not raw[1] then
    return nil
  end
  local expires = tonumber(raw[12])
  if expires > 0 and expires <= now_ms then
    return nil
  end
  return {
    key = key, id = id, partition_key = raw[1], interval = tonumber(raw[2]), anchor = tonumber(raw[3]),
    payload = raw[4], epoch = tonumber(raw[5]), status = raw[6], planned = tonumber(raw[7]),
    failures = tonumber(raw[8]), error = raw[9], revision = tonumber(raw[10]), created = tonumber(raw[11]),
    token = raw[13], attempt = tonumber(raw[14]), spec = raw[15] or '', fired = tonumber(raw[16] or 0),
    jitter = tonumber(raw[17] or 0), last = tonumber(raw[18]), most = tonumber(raw[19] or 0),
    paused = raw[20] == '1', note = raw[21] or '', pending = tonumber(raw[22] or 0), dropped = tonumber(raw[23] or 0),
    event = raw[24] or '', event_id = raw[25] or '', born = tonumber(raw[26] or 0),
  }
end

local function reply(t)
  return {
    t.id, t.partition_key, t.interval, t.anchor, t.payload, t.epoch, t.status, t.planned, t.failures, t.error,
    t.revision, t.created, t.spec, t.fired, t.paused, t.note, t.pending, t.dropped, t.event, t.event_id,
  }
end

-- Whether a trigger is among those that receive its events, unless it waits for none. Uses args: events (beginning of
-- keys), queue.
local function listens(t)
  return t.event == '' or (t.status ~= 'waiting' and t.status ~= 'paused')
    or redis.call('HEXISTS', args.events .. t.event, args.queue .. '/' .. t.id) == 1
end

-- The approximate size of a record in bytes.
local function size_of(t)
  return #t.payload + #t.spec + #t.error + #t.note
end

-- Returns the trigger that a firing belongs to, nil when it is gone or its id now names another trigger.
local function parent_of(firing, now_ms)
  local id = string.match(firing.id, '^[^:]+')
  local parent = read(args.prefix .. id, id, now_ms)
  return parent and parent.created == firing.born and parent or nil
end

-- Returns when the planned time is to be delivered, computed as in domain/schedule.py.
local function place_of(t)
  if t.jitter == 0 then
    return t.planned
  end
  local drawn = tonumber(string.sub(redis.sha1hex(string.format('%s:%.0f', t.id, t.planned)), 1, 8), 16)
  return t.planned + math.floor(drawn / 4294967296 * t.jitter)
end
