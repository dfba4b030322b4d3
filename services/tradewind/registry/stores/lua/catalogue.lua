--!include records
-- Reads declarations. args beyond those of records.lua: max_offering, max_bytes.

-- A declaration as {name, body, declared_at, ids of live workers}, nil when there is none.
local function declaration(name)
  local values = call('HMGET', node_type_key(name), 'declaration', 'declared_at')
  if not values[1] then return nil end
  local ids = call('ZRANGEBYSCORE', offering_key(name), '(' .. text(alive_after), '+inf', 'LIMIT', 0,
    args.max_offering)
  return {name, values[1], values[2], ids}
end

-- Returns the declarations of `names` that have not lapsed, and how many names it checked: it stops at `limit`
-- declarations, or once they have more than max_bytes.
local function declarations(names, limit)
  local found, bytes = {}, 0
  if #names == 0 then return found, 0 end
  for i, lapses in ipairs(call('ZMSCORE', LAPSES, unpack(names))) do
    local entry = lapses and tonumber(lapses) > time and declaration(names[i])
    if entry then
      found[#found + 1] = entry
      bytes = bytes + #entry[2]
      for _, id in ipairs(entry[4]) do bytes = bytes + #id end
    end
    if #found == limit or bytes > args.max_bytes then return found, i end
  end
  return found, #names
end
