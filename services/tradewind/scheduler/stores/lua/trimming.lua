--!include partition

-- Removes the oldest ended cycles of a flow beyond `keep`, at most so many, but for those whose end is still to be
-- returned; returns how many went.
local function trim(flow_id, keep, most)
  local cycles, open = flow_key(flow_id) .. ':cycles', flow_key(flow_id) .. ':open'
  local excess = call('ZCARD', cycles) - keep
  if excess <= 0 then return 0 end
  local running = call('ZCARD', open)
  excess = math.min(excess - running, most)
  local looked, trimmed = 0, 0
  if excess <= 0 then return 0 end
  local returning = call('EXISTS', base .. 'returns') == 1
  -- Whether a node of another flow has still to hear how a run ended.
  local function to_be_returned(key, name)
    local known = call('HMGET', key, 'parent', 'run_id', 'status')
    return known[1] and call('ZSCORE', base .. 'returns', flow_id .. ':' .. name .. ' ' .. known[2] .. ' ' .. known[3])
  end
  local oldest = call('ZRANGE', cycles, 0, math.min(running, 400) + most)
  for i, name in ipairs(oldest) do
    if looked < excess and not (running > 0 and call('ZSCORE', open, name)) then
      looked = looked + 1
      local cycle, run = string.match(name, '^(%d+):(%d+)$')
      local key = run_key(flow_id, cycle, run)
      if not (returning and to_be_returned(key, name)) then
        call('DEL', key, key .. ':nodes')
        -- Runs of a cycle share its log.
        if string.match(oldest[i + 1] or '', '^%d+') ~= cycle then call('DEL', logs_key(flow_id, cycle)) end
        call('ZREM', cycles, name)
        trimmed = trimmed + 1
      end
    end
  end
  return trimmed
end
