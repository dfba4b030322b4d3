-- Makes the triggers claimed for one order due again, as if they had never been claimed; no failure is counted.
-- KEYS: 1 due, 2 claimed
-- args: now_ms, prefix, channel, queue, nonce, last (the rank of the last claim to examine; absent: that of the
--   newest), limit
-- Returns the rank at which to go on, towards older claims, negative at the end.
--!include record
--!include endings

local now_ms = now(args.now_ms)
local former, earliest = head(KEYS[1]), nil
local mark = ':' .. args.nonce
-- Go downwards: claims that end between two calls lower the ranks of later ones, so that none is skipped.
local last = args.last or redis.call('ZCARD', KEYS[2]) - 1
local first = math.max(0, last - args.limit + 1)
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], first, last)) do
  local t = read(args.prefix .. id, id, now_ms)
  if t and t.status == 'claimed' and string.sub(t.token, -#mark) == mark then
    redis.call('ZREM', KEYS[2], id)
    local place = queue_up(KEYS[1], t, place_of(t))
    if place then
      earliest = math.min(earliest or place, place)
    end
  end
end
wake(args.channel, former, earliest)
return cmsgpack.pack(first - 1)
