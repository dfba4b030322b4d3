-- Makes a session the receiver of a partition, unless a receiver with a newer epoch is known. What the same receiver
-- had claimed in a session before is due again; what else was claimed lapses soon.
-- KEYS: 1 receiver, 2 due, 3 claimed
-- args: now_ms, prefix, epoch (negative: one of the queue's receivers), session, channel, give_back (claims at most),
--   former_claims (those that lapse soon, at most), former_lease_ms
-- Returns {known = newer epoch} or {survey}.
--!include record
--!include endings

need_indexes(KEYS[2], KEYS[3])
local now_ms = now(args.now_ms)
if args.epoch < 0 then
  return cmsgpack.pack({ survey = survey(head(KEYS[2]), head(KEYS[3]), now_ms) })
end
local receiver = need('HMGET', KEYS[1], 'epoch', 'session')
local known = tonumber(receiver[1] or -1)
if known > args.epoch then
  return cmsgpack.pack({ known = known })
end
local is_new = receiver[2] and receiver[2] ~= args.session
if is_new and known == args.epoch then
  for _, id in ipairs(redis.call('ZRANGE', KEYS[3], 0, args.give_back - 1)) do
    local t = read(args.prefix .. id, id, now_ms)
    if t and t.status == 'claimed' then
      redis.call('ZREM', KEYS[3], id)
      queue_up(KEYS[2], t, place_of(t))
    end
  end
end
if is_new then
  local lapse = string.format('%.0f', now_ms + args.former_lease_ms)
  local longer = redis.call('ZRANGE', KEYS[3], '(' .. lapse, '+inf', 'BYSCORE', 'LIMIT', 0, args.former_claims)
  for _, id in ipairs(longer) do
    redis.call('ZADD', KEYS[3], lapse, id)
  end
end
redis.call('HSET', KEYS[1], 'epoch', args.epoch, 'session', args.session)
redis.call('PUBLISH', args.channel, string.format('receiver %.0f %s', args.epoch, args.session))
return cmsgpack.pack({ survey = survey(head(KEYS[2]), head(KEYS[3]), now_ms) })
