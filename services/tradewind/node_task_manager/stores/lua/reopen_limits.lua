-- Queues node tasks that limits held back again, as many as one script may: the limits may have changed.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies.
-- Returns {effects, more (whether there is more)}.
--!include claim
local AT_ONCE = 500
for _, member in ipairs(index_call('ZRANGE', base .. 'parked', 0, -1)) do
  readmission.unpark(member)
end
for _, name in ipairs(index_call('ZRANGE', base .. 'blocked_of', 0, -1)) do
  local limit, group = readmission.group_of(name)
  if limit and AT_ONCE > 0 then AT_ONCE = AT_ONCE - readmission.group(limit, group, AT_ONCE) end
end
return cmsgpack.pack({effects = conclude(), more = call('EXISTS', base .. 'blocked_of') == 1 and AT_ONCE <= 0})
