--!include open_runs

-- Returns the names of up to `most` oldest runs in the index `cycles` of a flow, and how many entries it has taken out
-- of it instead, since they name no run.
local function oldest_runs(cycles, most)
  local names, others = call('ZRANGE', cycles, 0, most - 1), {}
  for i = #names, 1, -1 do
    if not string.find(names[i], '^%d+:%d+$') then others[#others + 1] = table.remove(names, i) end
  end
  if #others > 0 then call('ZREM', cycles, unpack(others)) end
  return names, #others
end

-- Whether a node of another flow still has to learn how a run ended.
local function end_is_awaited(key, flow_id, name)
  local known = call('HMGET', key, 'parent', 'run_id', 'status')
  return known[1] and call('ZSCORE', base .. 'returns', flow_id .. ':' .. name .. ' ' .. known[2] .. ' ' .. known[3])
end

-- Returns how many of these runs, counted from the first, belong to cycles up to `last` and ended at least
-- `args.settle` ms ago.
local function count_settled(flow_id, names, most, last)
  for i = 1, most do
    local cycle, run = string.match(names[i], '^(%d+):(%d+)$')
    local ended_at = call('HGET', run_key(flow_id, cycle, run), 'end_time')
    if tonumber(cycle) > last or ended_at and tonumber(ended_at) > time - args.settle then return i - 1 end
  end
  return most
end

-- Returns how many of the first `count` runs belong to cycles of which all runs are among them.
local function count_whole_cycles(names, count)
  local divided = string.match(names[count + 1] or '', '^%d+')
  while count > 0 and string.match(names[count], '^%d+') == divided do count = count - 1 end
  return count
end

-- Removes the oldest ended runs of a flow beyond its newest `keep` cycles, of which `newest` began last. Does nothing
-- until there are `least` runs too many, removes up to `most`, and stops at the first cycle with a run that ended just
-- now. The runs of a cycle go together, unless there are more than `most`. Runs stay while their end is still to be
-- returned, and while a later run of their cycle is open. Entries of the index that name no run go first, by
-- themselves. Returns how many runs it removed, and whether more may follow.
local function trim(flow_id, keep, newest, least, most)
  -- Cycles are numbered from 0, so none is too old yet.
  if newest < keep then return 0 end
  local cycles = flow_key(flow_id) .. ':cycles'
  local excess = call('ZCARD', cycles) - keep
  if excess < least then return 0 end
  local running = call('ZCOUNT', cycles, STOPPING, '+inf')
  excess = excess - running
  if excess < least then return 0 end
  local oldest, others = oldest_runs(cycles, math.min(excess, most) + 1)
  if others > 0 then return 0, true end
  local names, removed_keys = {}, {}
  local settled = count_settled(flow_id, oldest, math.min(excess, most), newest - keep)
  excess = count_whole_cycles(oldest, settled)
  if excess == 0 and settled == most then excess = most end
  if excess == 0 then return 0 end
  local returning = call('EXISTS', base .. 'returns') == 1
  local open_cycles = {}
  if running > 0 then
    local first, last = string.match(oldest[1], '^%d+'), string.match(oldest[excess], '^%d+')
    for _, name in ipairs(open_runs(cycles, first, last)) do open_cycles[string.match(name, '^%d+')] = true end
  end
  -- Runs of a cycle share its log, which goes with the last of them: `staying` is the last cycle of which a run stays.
  local staying
  for i = 1, excess do
    local cycle, run = string.match(oldest[i], '^(%d+):(%d+)$')
    local key = run_key(flow_id, cycle, run)
    if open_cycles[cycle] or returning and end_is_awaited(key, flow_id, oldest[i]) then
      staying = cycle
    else
      names[#names + 1] = oldest[i]
      removed_keys[#removed_keys + 1] = key
    end
    if cycle ~= staying and cycle ~= string.match(oldest[i + 1] or '', '^%d+') then
      removed_keys[#removed_keys + 1] = logs_key(flow_id, cycle)
    end
  end
  if #names > 0 then
    call('DEL', unpack(removed_keys))
    call('ZREM', cycles, unpack(names))
  end
  return #names, #names > 0 and settled == most
end
