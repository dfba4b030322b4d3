--!include partition
-- Returns the names of the open runs of cycles `first` to `last`; `cycles` is the key of their flow's index.
local function open_runs(cycles, first, last)
  local lowest, highest = first * RUNS, (last + 1) * RUNS - 1
  local names = call('ZRANGEBYSCORE', cycles, STOPPING + lowest, STOPPING + highest)
  for _, name in ipairs(call('ZRANGEBYSCORE', cycles, OPEN + lowest, OPEN + highest)) do names[#names + 1] = name end
  return names
end
