--!include shard
-- Whether a replica leads the cleaning of the shard, as the first one that asks does: it holds the lease `cleaner`,
-- which is prolonged.
local function leads(replica)
  local holder = index_call('GET', base .. 'cleaner')
  if holder and holder ~= replica then return false end
  call('SET', base .. 'cleaner', replica, 'PX', limits.cleaner_lease_ms)
  return true
end
