-- Takes a partition that nobody owns who is here. The epoch never falls, also past a loss of the store's last second: it
-- follows the clock.
-- KEYS: 1 owner.
-- args: base, epoch (0), now, replica, here (names of those who are), at (when they were).
-- Returns the new epoch, 0 when somebody owns it, or took it after that.
--!include partition
local known = redis.call('HMGET', KEYS[1], 'replica', 'epoch')
local holder, last = known[1] or '', tonumber(known[2] or 0)
if holder ~= '' and holder ~= args.replica then
  if last > args.at then return cmsgpack.pack(0) end
  for _, name in ipairs(args.here) do
    if name == holder then return cmsgpack.pack(0) end
  end
end
local new = math.max(last + 1, time)
redis.call('HSET', KEYS[1], 'replica', args.replica, 'epoch', new)
return cmsgpack.pack(new)
