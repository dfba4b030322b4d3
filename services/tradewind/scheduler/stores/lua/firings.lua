--!include partition
-- What became of the planned times of a flow: a line each, as domain/firing.py writes it, scored by the planned time; and
-- the queue of those that wait for a running cycle. `key` is the flow's hash. Where a line ends with a planned time, for an
-- event that is followed by its mark, and so it stands in the queue, before the inputs of the cycle: both are its `label`.
local FIRINGS, QUEUE = 1000, 100
local firings = {}

-- Adds the line of a planned time that has none.
function firings.add(key, planned, outcome, reason, name, run_id, count, last, most)
  local cycle, run = string.match(name or '-1:0', '^(.+):(%d+)$')
  local lines = key .. ':firings'
  call('ZADD', lines, planned, digits('%d %s %s %s %s %d %d %s %s', planned, outcome, cycle, run, run_id or '-', time, count or 1,
    last or digits('%d', planned), reason or ''))
  call('ZREMRANGEBYRANK', lines, 0, -(most or FIRINGS) - 1)
end

-- Writes the line of a planned time, over the one that it has.
function firings.note(key, planned, ...)
  call('ZREMRANGEBYSCORE', key .. ':firings', planned, planned)
  firings.add(key, planned, ...)
end

-- The outcome of a planned time that was settled before, and of the run that began: cycle, run, run_id; nil when it is new.
function firings.of(key, planned)
  local line = call('ZRANGEBYSCORE', key .. ':firings', planned, planned, 'LIMIT', 0, 1)[1]
  if not line then return nil end
  local outcome, cycle, run, run_id = string.match(line, '^%d+ (%a+) (%-?%d+) (%d+) (%S+)')
  return outcome, tonumber(cycle), tonumber(run), run_id
end

-- Lets all planned times that wait give way; returns how many did, and the last of them.
function firings.drop_queued(key, flow_id, reason)
  local dropped, planned = call('ZRANGE', key .. ':queued', 0, -1), nil
  for _, waiting in ipairs(dropped) do
    planned = string.match(waiting, '^%d+')
    firings.note(key, planned, 'dropped', reason, nil, nil, nil, string.match(waiting, '^%S+'))
  end
  call('DEL', key .. ':queued')
  call('ZREM', base .. 'queued', flow_id)
  return #dropped, planned
end

function firings.queue(key, flow_id, planned, reason, label, inputs)
  call('ZADD', key .. ':queued', planned, label and label .. ' ' .. inputs or planned)
  call('ZADD', base .. 'queued', time, flow_id)
  firings.note(key, planned, 'queued', reason, nil, nil, nil, label)
end

-- Takes out the planned time that waits longest; returns it, its label, and the inputs of the cycle ("" but for an event).
function firings.next_queued(key, flow_id)
  local waiting = call('ZRANGE', key .. ':queued', 0, 0)[1]
  if waiting then call('ZREM', key .. ':queued', waiting) end
  if call('EXISTS', key .. ':queued') == 0 then call('ZREM', base .. 'queued', flow_id) end
  local label, inputs = string.match(waiting or '', '^(%S+) ?(.*)$')
  return tonumber(string.match(label or '', '^%d+')), label, inputs
end

local function forget_pause(key)
  call('HDEL', key, 'paused_by', 'paused_at', 'note', 'paused_next', 'paused_failures', 'paused_failed_cycle')
end

-- Ends a flow in a status, of whose schedule `next_at` comes next (0 for nothing), when nothing of it runs or waits.
local function end_flow_that_is_over(key, status, next_at, ended)
  if (status == 'running' or status == 'paused') and next_at == 0
    and call('ZCOUNT', key .. ':cycles', STOPPING, '+inf') == 0 and call('EXISTS', key .. ':queued') == 0 then
    call('HSET', key, 'status', ended, 'next_execution', 0, 'updated_at', time)
    forget_pause(key)
  end
end
