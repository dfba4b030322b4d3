-- Makes a session the receiver of a partition, unless a receiver with a newer epoch is known.
-- KEYS: 1 receiver, 2 due, 3 claimed
-- args: now_ms, epoch (negative: one of the queue's receivers), session, channel
-- Returns {known = newer epoch} or {survey}.
--!include heads

if args.epoch < 0 then
  return cmsgpack.pack({ survey = survey(KEYS[2], KEYS[3], now(args.now_ms)) })
end
local known = tonumber(redis.call('HGET', KEYS[1], 'epoch') or -1)
if known > args.epoch then
  return cmsgpack.pack({ known = known })
end
redis.call('HSET', KEYS[1], 'epoch', args.epoch, 'session', args.session)
redis.call('PUBLISH', args.channel, string.format('receiver %.0f %s', args.epoch, args.session))
return cmsgpack.pack({ survey = survey(KEYS[2], KEYS[3], now(args.now_ms)) })
