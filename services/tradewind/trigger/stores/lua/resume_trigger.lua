-- Lets a paused trigger fire again.
-- KEYS: 1 the trigger's hash, 2 due
-- args: now_ms, id, policy, channel, queue, seen and planned: if the planned time is still `seen`, it becomes `planned`
--   (absent: no time is left, and the trigger completes)
-- Returns {record}, unchanged when it was not paused, or {} when there is none.
--!include record
--!include endings

need_indexes(KEYS[2])
local now_ms = now(args.now_ms)
local t = read(KEYS[1], args.id, now_ms)
if not t then
  return cmsgpack.pack({})
end
if t.paused then
  t.paused, t.note = false, ''
  redis.call('HSET', KEYS[1], 'paused', '0', 'note', '')
end
if t.status == 'paused' then
  if t.event ~= '' then
    t.status = 'waiting'
    redis.call('HSET', KEYS[1], 'status', t.status)
  elseif t.planned == args.seen and not args.planned then
    t.status = 'completed'
    finish(t, t.status, now_ms)
  else
    if t.planned == args.seen then
      t.planned = args.planned
    end
    local former = head(KEYS[2])
    t.status = 'scheduled'
    wake(args.channel, former, queue_up(KEYS[2], t, place_of(t)))
  end
end
return cmsgpack.pack({ reply(t) })
