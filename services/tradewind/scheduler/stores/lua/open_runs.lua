--!include partition
-- Names of the runs of some cycles, first to last, that have not ended; `cycles` is the index of their flow.
local function open_runs(cycles, first, last)
  local lowest, highest = first * RUNS, (last + 1) * RUNS - 1
  local names = call('ZRANGEBYSCORE', cycles, STOPPING + lowest, STOPPING + highest)
  for _, name in ipairs(call('ZRANGEBYSCORE', cycles, OPEN + lowest, OPEN + highest)) do names[#names + 1] = name end
  return names
end
