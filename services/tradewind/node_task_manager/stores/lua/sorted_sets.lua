--!include shard
-- Members to remove from sorted sets and to add to them at the end of the script, in this order.
local added, removed = {}, {}
fresh(function()
  added = {}
  if next(removed) then removed = {} end
end)

local function put(key, member, score)
  local items = added[key]
  if not items then items = {} added[key] = items end
  local n = #items
  items[n + 1] = score
  items[n + 2] = member
end

-- Takes a member out of a list of scores and members; returns whether it was there.
local function withdraw(items, member)
  local found = false
  for at = #items, 2, -2 do
    if items[at] == member then
      table.remove(items, at)
      table.remove(items, at - 1)
      found = true
    end
  end
  return found
end

local function remove(key, member)
  local items = removed[key]
  if not items then items = {} removed[key] = items end
  items[#items + 1] = member
end
