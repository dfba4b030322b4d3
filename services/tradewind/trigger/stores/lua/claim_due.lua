-- Takes lapsed claims back, then leases due triggers, oldest first, to the partition's receiver.
-- KEYS: 1 due, 2 claimed, 3 dead, 4 receiver, 5 firings, 6 alarms
-- args: now_ms, prefix, all, channel, queue, partition, epoch (negative: one of the queue's receivers), session, limit,
--   lease_ms, nonce, lead {max_ms, shares, min_ms, each_ms}, max_bytes, reap (lapsed claims at most), policy
-- Returns {ended = true} when another session is the receiver, or {claims = {{record, token, for a firing the record of
-- its trigger}}, deadline, survey, dead = {{id, failures, error}}, orphans = ids of index entries without a trigger}.
--!include record
--!include endings

local now_ms = now(args.now_ms)
if args.epoch >= 0 then
  local receiver = need('HMGET', KEYS[4], 'epoch', 'session')
  local known = tonumber(receiver[1] or -1)
  if known > args.epoch or (known == args.epoch and receiver[2] ~= args.session) then
    return cmsgpack.pack({ ended = true })
  end
  if known < args.epoch then
    -- The store lost the subscription in a failover; the claim renews it.
    redis.call('HSET', KEYS[4], 'epoch', args.epoch, 'session', args.session)
  end
end

local claims, dead, orphans = {}, {}, {}
local lapsed = false

local overdue = need('ZRANGE', KEYS[2], '-inf', now_ms, 'BYSCORE', 'LIMIT', 0, args.reap)
if #overdue > 0 then need_indexes(KEYS[1]) end
for _, id in ipairs(overdue) do
  local t = read(args.prefix .. id, id, now_ms)
  if t and t.status == 'claimed' then
    local message = 'the lease lapsed before an answer came'
    -- The first lapse in a row causes no delay: most often the receiver has just died.
    local _, died = fail(KEYS[1], KEYS[2], KEYS[3], KEYS[5], t, message, backoff(t.failures), now_ms)
    lapsed = true
    if died then
      dead[#dead + 1] = { id, t.failures, message }
    end
  else
    redis.call('ZREM', KEYS[2], id)
    if not t then
      orphans[#orphans + 1] = id
    end
  end
end

local deadline = now_ms + args.lease_ms
-- See domain/lead.py.
local lead, lead_ms = args.lead, 0
if lead.max_ms > 0 then
  local count = need('ZCOUNT', KEYS[1], '-inf', now_ms + lead.max_ms)
  lead_ms = math.min(lead.max_ms, math.floor(lead.min_ms + lead.each_ms * count * lead.shares))
end
local size = 0
for _, id in ipairs(need('ZRANGE', KEYS[1], '-inf', now_ms + lead_ms, 'BYSCORE', 'LIMIT', 0, args.limit)) do
  if size >= args.max_bytes then
    break
  end
  redis.call('ZREM', KEYS[1], id)
  local t = read(args.prefix .. id, id, now_ms)
  local parent = t and t.event_id ~= '' and parent_of(t, now_ms) or nil
  if t and t.event_id ~= '' and not parent then
    -- Its trigger was removed.
    redis.call('DEL', t.key)
  elseif t and t.status == 'scheduled' then
    t.status, t.attempt = 'claimed', t.attempt + 1
    t.token = string.format('%d:%s:%.0f:%s', args.partition, id, t.attempt, args.nonce)
    redis.call('HSET', t.key, 'status', t.status, 'attempt', t.attempt, 'token', t.token)
    redis.call('ZADD', KEYS[2], deadline, id)
    claims[#claims + 1] = { reply(t), t.token, parent and reply(parent) or nil }
    size = size + size_of(t) + (parent and size_of(parent) or 0)
  elseif not t then
    orphans[#orphans + 1] = id
  end
end

if #orphans > 0 then
  note('HINCRBY', KEYS[6], 'orphans', #orphans)
end
if lapsed and args.epoch < 0 then
  -- This receiver may have no room for the triggers that lapsed; notify the others.
  wake(args.channel, nil, head(KEYS[1]))
end
local seen = survey(head(KEYS[1]), head(KEYS[2]), now_ms)
seen.lead = lead_ms
return cmsgpack.pack({
  claims = claims, deadline = deadline, survey = seen, dead = dead, orphans = orphans,
})
