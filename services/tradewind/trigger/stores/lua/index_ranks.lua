-- Finds the place of a cursor (score, id) in an index, exactly among equal scores and even if its own entry is gone.

-- Whether `one` comes after `other` in an index. Compares bytes, as Redis does: Lua's own order depends on the locale.
local function comes_after(one, other)
  for at = 1, math.min(#one, #other) do
    local a, b = string.byte(one, at), string.byte(other, at)
    if a ~= b then
      return a > b
    end
  end
  return #one > #other
end

-- Returns how many entries do not come after the cursor, which is also the rank of the first that does.
local function count_up_to(index, cursor_score, cursor_id)
  local first, last = 0, redis.call('ZCARD', index)
  while first < last do
    local middle = math.floor((first + last) / 2)
    local entry = redis.call('ZRANGE', index, middle, middle, 'WITHSCORES')
    local score = tonumber(entry[2])
    if score > cursor_score or (score == cursor_score and comes_after(entry[1], cursor_id)) then
      last = middle
    else
      first = middle + 1
    end
  end
  return first
end
