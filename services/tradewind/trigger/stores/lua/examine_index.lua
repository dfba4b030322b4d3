-- Looks for broken invariants in a part of an index, and mends them on a second pass. What a partition has beside its
-- indexes is examined with the beginning of `due`.
-- KEYS: 1 the index, 2 due, 3 claimed, 4 alarms, 6 all of the queue, 7 firings, 9 receiver, and others that
--   sweep_index.lua needs
-- args: now_ms, prefix, index ('due', 'claimed', 'dead' or 'all'), queue, events (beginning of keys), first (a rank),
--   limit, recheck (names of findings to check a second time, or nil), mend, policy
-- Returns {seen, findings = {check, subject, problem, mended}}.
--!include record
--!include findings

local now_ms = now(args.now_ms)
local expected = { due = 'scheduled', claimed = 'claimed', dead = 'dead' }
local seen = 0

-- Checks that a trigger is in the index that its status requires, and that a scheduled one does not expire.
local function examine(t, subject)
  if t.status == 'scheduled' and not redis.call('ZSCORE', KEYS[2], t.id) then
    found('trigger-not-due', subject, 'it is enabled, but would never fire', function()
      redis.call('ZADD', KEYS[2], place_of(t), t.id)
    end)
  elseif t.status == 'claimed' and not redis.call('ZSCORE', KEYS[3], t.id) then
    found('claim-without-lease', subject, 'it is claimed by a receiver, but its lease would never lapse', function()
      redis.call('ZADD', KEYS[3], now_ms, t.id)
    end)
  elseif not listens(t) then
    found('trigger-not-listening', subject, 'it waits for events, but is not listed as a listener', function()
      redis.call('HSET', args.events .. t.event, args.queue .. '/' .. t.id, t.spec)
    end)
  end
  if args.queue ~= '' and t.event_id == '' and not redis.call('ZSCORE', KEYS[6], t.id) then
    found('trigger-not-listed', subject, 'it is not among the triggers of its queue', function()
      redis.call('ZADD', KEYS[6], t.created, t.id)
    end)
  end
  local left = redis.call('PTTL', t.key)
  if t.status == 'scheduled' and left >= 0 then
    found('trigger-expires', subject, 'it is enabled, but would expire in ' .. left .. ' ms', function()
      redis.call('PERSIST', t.key)
    end)
  end
end

-- Whether the trigger of an index entry made at `score` may have passed its retention: its record ends first, and the
-- next sweep removes the entry.
local function may_be_over(score)
  return (args.index == 'all' or args.index == 'dead') and score + args.policy.retention_ms <= now_ms
end

local function examine_entry(id, score, subject)
  local t = read(args.prefix .. id, id, now_ms)
  if t and (args.index == 'all' or t.status == expected[args.index]) then
    examine(t, subject)
  elseif t or not may_be_over(score) then
    local state = expected[args.index] and 'is ' .. expected[args.index] or 'exists'
    found('index-without-record', args.index .. ' ' .. subject, 'no trigger with this id ' .. state, function()
      redis.call('ZREM', KEYS[1], id)
    end)
  end
end

local CONSEQUENCES = {
  due = ', so no trigger fires', claimed = ', so no trigger fires', dead = ', so no dead trigger is listed',
  all = ', so no trigger of the queue is listed or saved',
}

-- These keys hold no records: what other keys tell is put back, the rest comes anew.
if args.first == 0 then
  fits('zset', KEYS[1], CONSEQUENCES[args.index])
  if args.index == 'due' then
    fits('hash', KEYS[4], ', so losses are not counted')
    fits('stream', KEYS[7], ', so no firing is added to the history')
    if args.queue == '' then fits('hash', KEYS[9], ', so no trigger fires') end
  end
end
for _, at in ipairs({ 1, 2, 3, 6 }) do
  -- Until this index is replaced, entries of the others cannot be examined.
  if of_another_type(redis.pcall('ZCARD', KEYS[at])) then return cmsgpack.pack({ seen = seen, findings = findings }) end
end
local entries = redis.call('ZRANGE', KEYS[1], args.first, args.first + args.limit - 1, 'WITHSCORES')
for at = 1, #entries, 2 do
  seen = seen + 1
  local subject = args.queue == '' and entries[at] or args.queue .. '/' .. entries[at]
  examined(args.index .. ' ' .. subject, examine_entry, entries[at], tonumber(entries[at + 1]), subject)
end
return cmsgpack.pack({ seen = seen, findings = findings })
