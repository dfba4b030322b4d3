--!include partition

-- Whether a node of another flow has still to hear how a run ended.
local function is_to_be_returned(key, flow_id, name)
  local known = call('HMGET', key, 'parent', 'run_id', 'status')
  return known[1] and call('ZSCORE', base .. 'returns', flow_id .. ':' .. name .. ' ' .. known[2] .. ' ' .. known[3])
end

-- Removes the oldest ended cycles of a flow beyond `keep`, at most so many, but for those whose end is still to be
-- returned; returns how many went.
local function trim(flow_id, keep, most)
  local flow = flow_key(flow_id)
  local cycles, open = flow .. ':cycles', flow .. ':open'
  local excess = call('ZCARD', cycles) - keep
  if excess <= 0 then return 0 end
  local running = call('ZCARD', open)
  excess = math.min(excess - running, most)
  if excess <= 0 then return 0 end
  local returning = call('EXISTS', base .. 'returns') == 1
  local looked, names, gone = 0, {}, {}
  local oldest = call('ZRANGE', cycles, 0, math.min(running, 400) + excess)
  for i, name in ipairs(oldest) do
    if looked < excess and not (running > 0 and call('ZSCORE', open, name)) then
      looked = looked + 1
      local cycle, run = string.match(name, '^(%d+):(%d+)$')
      local key = run_key(flow_id, cycle, run)
      if not (returning and is_to_be_returned(key, flow_id, name)) then
        names[#names + 1] = name
        gone[#gone + 1] = key
        gone[#gone + 1] = key .. ':nodes'
        -- Runs of a cycle share its log.
        if string.match(oldest[i + 1] or '', '^%d+') ~= cycle then gone[#gone + 1] = logs_key(flow_id, cycle) end
      end
    end
  end
  if #names > 0 then
    call('DEL', unpack(gone))
    call('ZREM', cycles, unpack(names))
  end
  return #names
end
