-- Settles an acknowledged firing with its trigger.
--!include endings
--!include tombstone

-- Ends an acknowledged firing. It is remembered, so that the same event makes no second one, and its trigger counts it.
local function settle_firing(firing, now_ms)
  redis.call('DEL', firing.key)
  bury_epoch(args.removed .. firing.id, firing.epoch, now_ms, args.policy.repeat_ms)
  local parent = uncount_pending(firing, now_ms)
  if not parent or parent.event == '' then
    return
  end
  local count = redis.call('HINCRBY', parent.key, 'fired', 1)
  if parent.most > 0 and count >= parent.most and parent.status ~= 'completed' then
    redis.call('HDEL', args.events .. parent.event, args.queue .. '/' .. parent.id)
    finish(parent, 'completed', now_ms)
  end
end
