-- Reads a page of the triggers in an index, in the order of (score, id).
-- KEYS: 1 the index
-- args: now_ms, prefix, after_score and after_id (absent: from the start), up_to (absent: now), everything, limit,
--   max_bytes
-- Returns {triggers = records, size = their bytes, score and id of the last entry read, more = whether others follow}.
--!no-writes
--!include record
--!include index_ranks
--!include kinds

need_indexes(KEYS[1])
local now_ms = now(args.now_ms)
local up_to = args.up_to or now_ms

local first = args.after_score and count_up_to(KEYS[1], args.after_score, args.after_id) or 0
local page = { triggers = {}, size = 0, more = false }
local entries = redis.call('ZRANGE', KEYS[1], first, first + args.limit, 'WITHSCORES')
for index = 1, #entries, 2 do
  local id, score = entries[index], tonumber(entries[index + 1])
  if not args.everything and score > up_to then
    break
  end
  if index > 2 * args.limit or page.size >= args.max_bytes then
    page.more = true
    break
  end
  page.id, page.score = id, score
  local t = read(args.prefix .. id, id, now_ms)
  if t then
    page.triggers[#page.triggers + 1] = reply(t)
    page.size = page.size + size_of(t)
  end
end
return cmsgpack.pack(page)
