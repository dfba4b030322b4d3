-- Keeps a trigger from firing until it is resumed; a running claim may still be acknowledged.
-- KEYS: 1 the trigger's hash, 2 due
-- args: now_ms, id, note
-- Returns {record}, unchanged when it has ended, or {} when there is none.
--!include record
--!include kinds

local t = read(KEYS[1], args.id, now(args.now_ms))
if not t then
  return cmsgpack.pack({})
end
if t.status == 'scheduled' or t.status == 'waiting' then
  note('ZREM', KEYS[2], args.id)
  t.status = 'paused'
end
if t.status == 'paused' or t.status == 'claimed' then
  t.paused, t.note = true, args.note
  redis.call('HSET', KEYS[1], 'status', t.status, 'paused', '1', 'note', t.note)
end
return cmsgpack.pack({ reply(t) })
