-- Acquires a partition that no present replica owns. The epoch follows the clock, so that it never falls, even when the
-- store has lost its last second.
-- KEYS: 1 owner.
-- args: base, epoch (0), now, replica, here (names of the present replicas), at (when they were present).
-- Returns the new epoch, 0 when a present replica owns the partition, or another one has taken it since `at`.
--!include partition
local known = redis.pcall('HMGET', KEYS[1], 'replica', 'epoch')
-- A key of another type names no owner.
if known.err then call('DEL', KEYS[1]) end
local holder, last = known[1] or '', tonumber(known[2] or 0) or 0
if holder ~= '' and holder ~= args.replica then
  if last > args.at then return cmsgpack.pack(0) end
  for _, name in ipairs(args.here) do
    if name == holder then return cmsgpack.pack(0) end
  end
end
local new = math.max(last + 1, time)
call('HSET', KEYS[1], 'replica', args.replica, 'epoch', new)
return cmsgpack.pack(new)
