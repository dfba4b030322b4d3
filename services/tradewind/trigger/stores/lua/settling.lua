-- Shared by the scripts that end or prolong claims in bulk.
--!include record
--!include endings

-- Returns the claimed trigger that `token` holds, or nil when that claim is void.
local function claimed_trigger(id, token, now_ms)
  local t = read(args.prefix .. id, id, now_ms)
  if t and t.status == 'claimed' and t.token == token then
    return t
  end
  return nil
end

-- Wakes the partition's receiver, unless it is the caller, which gets the heads in the reply.
local function wake_others(receiver, former, earliest)
  if earliest and redis.call('HGET', receiver, 'session') ~= args.session then
    wake(args.channel, former, earliest)
  end
end
