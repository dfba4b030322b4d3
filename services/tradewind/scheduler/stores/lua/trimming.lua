--!include partition

-- Removes the oldest ended cycles of a flow beyond `keep`, at most so many; returns how many went.
local function trim(flow_id, keep, most)
  local cycles, open = flow_key(flow_id) .. ':cycles', flow_key(flow_id) .. ':open'
  local excess = call('ZCARD', cycles) - keep
  if excess <= 0 then return 0 end
  local running = call('ZCARD', open)
  excess = math.min(excess - running, most)
  local trimmed = 0
  if excess <= 0 then return 0 end
  local oldest = call('ZRANGE', cycles, 0, math.min(running, 400) + most)
  for i, name in ipairs(oldest) do
    if trimmed < excess and not (running > 0 and call('ZSCORE', open, name)) then
      local cycle, run = string.match(name, '^(%d+):(%d+)$')
      local key = run_key(flow_id, cycle, run)
      call('DEL', key, key .. ':nodes')
      -- Runs of a cycle share its log.
      if string.match(oldest[i + 1] or '', '^%d+') ~= cycle then call('DEL', logs_key(flow_id, cycle)) end
      call('ZREM', cycles, name)
      trimmed = trimmed + 1
    end
  end
  return trimmed
end
