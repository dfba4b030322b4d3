-- Remembers the epoch of a removed trigger for a while, as '<epoch>:<until>'.
local function buried_epoch(key, now_ms)
  local epoch, till = string.match(redis.call('GET', key) or '', '^(%d+):(%d+)$')
  if epoch and tonumber(till) > now_ms then
    return tonumber(epoch)
  end
  return nil
end

local function bury_epoch(key, epoch, now_ms, keep_ms)
  redis.call('SET', key, string.format('%.0f:%.0f', epoch, now_ms + keep_ms), 'PX', keep_ms)
end
