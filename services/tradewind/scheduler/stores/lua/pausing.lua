--!include firings
-- Pauses a flow: no cycle begins until it is resumed, and those that run go on. `key` is the flow's hash.
local function pause(key, flow_id, by, note)
  local known = call('HMGET', key, 'next_execution', 'schedule_epoch', 'fired')
  local next_at, fired = known[1], tonumber(known[3] or 0)
  local dropped, last = firings.drop_queued(key, flow_id, 'the flow was paused')
  if fired > 0 and last then
    -- The cycles that waited have not begun, so they no longer count towards max_cycles: others may begin instead.
    call('HSET', key, 'fired', math.max(0, fired - dropped))
    if next_at == '0' then next_at = last end
  end
  call('HSET', key, 'status', 'paused', 'paused_by', by, 'paused_at', time, 'note', note, 'paused_next', next_at,
    'next_execution', 0, 'updated_at', time, 'schedule_epoch', math.max(tonumber(known[2]) + 1, time))
  call('ZADD', base .. 'outbox', time, flow_id)
end

-- Counts a flow's failed cycles in a row, and pauses the flow after `most` of them; returns whether it did.
local function count_failures(key, flow_id, status, most, cycle, ending)
  if ending ~= 'failed' and ending ~= 'timeout' then
    call('HSET', key, 'failures', 0)
    return false
  end
  local failures = call('HINCRBY', key, 'failures', 1)
  if failures < most or status ~= 'running' then return false end
  local note = failures == 1 and 'paused because cycle ' .. cycle .. ' failed'
    or 'paused after ' .. failures .. ' failed cycles in a row, the last of which was cycle ' .. cycle
  pause(key, flow_id, 'system', note)
  call('HSET', key, 'failures', 0, 'paused_failures', failures, 'paused_failed_cycle', cycle)
  return true
end
