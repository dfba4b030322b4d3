-- Makes the triggers claimed for one order due again, as if they had never been claimed; no failure is counted.
-- KEYS: 1 due, 2 claimed
-- args: now_ms, prefix, channel, queue, nonce, first ({deadline, id} of the claim to begin with; absent: the last one),
--   limit
-- Returns {{deadline, id}} of the claim to go on with, towards earlier deadlines, {} at the end.
--!include record
--!include endings
--!include index_ranks

need_indexes(KEYS[1], KEYS[2])
local now_ms = now(args.now_ms)
local former, earliest = head(KEYS[1]), nil
local mark = ':' .. args.nonce
-- Go on by deadline, not by rank: between two calls claims end, or get other deadlines, and ranks shift. The order's
-- own claims keep their deadlines, because nobody received them; so none is skipped.
local count = args.first and count_up_to(KEYS[2], args.first[1], args.first[2]) or redis.call('ZCARD', KEYS[2])
local lowest = math.max(0, count - args.limit)
local further = lowest > 0 and redis.call('ZRANGE', KEYS[2], lowest - 1, lowest - 1, 'WITHSCORES')
for _, id in ipairs(count > 0 and redis.call('ZRANGE', KEYS[2], lowest, count - 1) or {}) do
  local t = read(args.prefix .. id, id, now_ms)
  if t and t.status == 'claimed' and string.sub(t.token, -#mark) == mark then
    redis.call('ZREM', KEYS[2], id)
    earliest = earlier(earliest, queue_up(KEYS[1], t, place_of(t)))
  end
end
wake(args.channel, former, earliest)
return cmsgpack.pack(further and { { tonumber(further[2]), further[1] } } or {})
