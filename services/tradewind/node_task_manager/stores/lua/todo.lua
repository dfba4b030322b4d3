--!include records
-- Work that follows from changes, in the order in which it came up. What exceeds the budget of one script waits in the
-- list `todo` for the next. An item is {kind, component, index, offset, source}; a record means: deliver its outputs.
local work, drained = {}, false
fresh(function() work, drained = {}, false end)
-- Kinds of work: each function takes component, offset, index and source, does as much as the budget allows, and
-- returns the offset at which to go on, or nil.
local WORK = {}
local todo = {}

local function later(kind, comp, index, offset, source)
  work[#work + 1] = {kind, comp, index, offset, source}
end

do
  local call = index_call

  local function delivery(record, offset) return {'deliver', record.comp, record.index, offset, record} end

  local function packed(item)
    if item.key then item = delivery(item, 1) end
    local comp = item[2]
    return cmsgpack.pack({item[1], comp.run, comp.id, comp.run_id, item[3], item[4]})
  end

  -- Returns the kind of an item that `packed` wrote, its run, component and run_id, and its place; nil for what
  -- somebody has put there, which is no work.
  function todo.facts(text)
    local readable, item = pcall(cmsgpack.unpack, text)
    if not readable or type(item) ~= 'table' or #item ~= 6 or not WORK[item[1]] then return end
    if type(item[2]) == 'string' and type(item[3]) == 'string' then return unpack(item) end
  end

  -- Returns the item that `packed` wrote, nil when its component is gone or another one has its name.
  function todo.unpacked(text)
    local kind, run, id, run_id, index, offset = todo.facts(text)
    local comp = kind and component(run, id)
    if comp and comp.run_id == run_id then return {kind, comp, index, offset} end
  end

  -- Does an item as far as the budget goes; returns what is left of it, or false.
  local function rest_of(item)
    if item.key then
      local offset = WORK.deliver(item.comp, 1, item.index, item)
      return offset and delivery(item, offset) or false
    end
    item[4] = WORK[item[1]](item[2], item[4], item[3], item[5])
    return item[4] and item or false
  end

  -- Does the work that has come up in this script so far, as far as the budget goes.
  function todo.do_early()
    local at, left = 1, {}
    while budget > 0 and work[at] do
      work[at] = rest_of(work[at])
      if not work[at] then at = at + 1 end
    end
    for rest = at, #work do left[#left + 1] = work[rest] end
    work = left
  end

  -- Does the work of this script, then what earlier ones left, as far as the budget goes; leaves the rest to later
  -- scripts.
  function todo.do_all()
    local at, own, left = 1, true, {}
    drained = false
    while budget > 0 do
      -- Work that earlier scripts left comes before the work that follows from it.
      local popped = not (own and work[at]) and call('LPOP', base .. 'todo')
      own = not popped
      if popped then
        budget = budget - 1
        local item = todo.unpacked(popped)
        local rest = item and rest_of(item)
        if rest then call('LPUSH', base .. 'todo', packed(rest)) end
      elseif work[at] then
        work[at] = rest_of(work[at])
        if not work[at] then at = at + 1 end
      else
        drained = true
        break
      end
    end
    for rest = at, #work do left[#left + 1] = packed(work[rest]) end
    in_pieces('RPUSH', base .. 'todo', left)
    work = {}
  end
end
