-- Stores notifications that others send; a notification whose key was sent to the same user within a day is dropped.
-- KEYS[1] any key of the shard. args: base, now, limits, notifications {user_id, key ("" for none), fact}.
-- Returns for each whether it was stored.
--!include notifications
local kept = {}
for i, each in ipairs(args.notifications) do
  kept[i] = each.key == '' or notices.once(each.user_id, 'key:' .. each.key, limits.retention_ms)
  if kept[i] then notices.notify(each.user_id, each.fact) end
end
notices.publish()
return cmsgpack.pack(kept)
