-- Reads a page of the triggers in an index, in the order of (score, id).
-- KEYS: 1 the index
-- args: now_ms, prefix, after_score and after_id (absent: from the start), up_to (absent: now), everything, limit,
--   max_bytes
-- Returns {triggers = records, size = their bytes, score and id of the last entry read, more = whether others follow}.
--!include record

local now_ms = now(args.now_ms)
local up_to = args.up_to or now_ms

-- Whether `one` comes after `other` in an index. Compares bytes, as Redis does: Lua's own order depends on the locale.
local function stands_after(one, other)
  for at = 1, math.min(#one, #other) do
    local mine, its = string.byte(one, at), string.byte(other, at)
    if mine ~= its then
      return mine > its
    end
  end
  return #one > #other
end

local function beyond(rank)
  local entry = redis.call('ZRANGE', KEYS[1], rank, rank, 'WITHSCORES')
  local score = tonumber(entry[2])
  return score > args.after_score or (score == args.after_score and stands_after(entry[1], args.after_id))
end

-- Find the rank of the first entry after the cursor by binary search: exact among equal scores, and even when the
-- cursor's own entry is gone.
local first = 0
if args.after_score then
  local last = redis.call('ZCARD', KEYS[1])
  while first < last do
    local middle = math.floor((first + last) / 2)
    if beyond(middle) then
      last = middle
    else
      first = middle + 1
    end
  end
end

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
