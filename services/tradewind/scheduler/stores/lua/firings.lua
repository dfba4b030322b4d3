--!include partition
-- The ledger, with a line for what became of each planned time of a flow, scored by the planned time, in the form that
-- redis/firing_codec.py reads; and the queue of planned times that wait for a running cycle. `key` is the flow's hash.
-- For an event, the planned time is followed by the event's mark, both in a line and in the queue: together they are
-- its `label`. In the queue, the id of the run that is to begin comes next, and for an event the inputs of the cycle.
local FIRINGS, QUEUE = 1000, 100
local firings = {}

-- Adds the line of a planned time that has none.
function firings.add(key, planned, outcome, reason, name, run_id, count, last, most)
  local cycle, run = string.match(name or '-1:0', '^(.+):(%d+)$')
  local lines = key .. ':firings'
  call('ZADD', lines, planned, digits('%d %s %s %s %s %d %d %s %s', planned, outcome, cycle, run, run_id or '-', time,
    count or 1, last or digits('%d', planned), reason or ''))
  call('ZREMRANGEBYRANK', lines, 0, -(most or FIRINGS) - 1)
end

-- Writes the line of a planned time, replacing the line that it has.
function firings.note(key, planned, ...)
  call('ZREMRANGEBYSCORE', key .. ':firings', planned, planned)
  firings.add(key, planned, ...)
end

-- Writes the line of a planned time for which no cycle begins yet; `label` is nil unless it is that of an event.
function firings.settle(key, planned, outcome, reason, label)
  firings.note(key, planned, outcome, reason, nil, nil, nil, label)
end

-- Writes one line for planned times that have passed, {first, last, count}.
function firings.settle_passed(key, passed, outcome, reason)
  firings.note(key, passed[1], outcome, reason, nil, nil, passed[3], passed[2])
end

-- Returns the outcome of a planned time that was settled before, and cycle, run and run_id of the run that began; nil
-- when the time is new.
function firings.of(key, planned)
  local line = call('ZRANGEBYSCORE', key .. ':firings', planned, planned, 'LIMIT', 0, 1)[1]
  if not line then return nil end
  local outcome, cycle, run, run_id = string.match(line, '^%d+ (%a+) (%-?%d+) (%d+) (%S+)')
  return outcome, tonumber(cycle), tonumber(run), run_id
end

-- Drops all planned times that wait; returns how many there were, and the last of them.
function firings.drop_queued(key, flow_id, reason)
  local dropped, planned = call('ZRANGE', key .. ':queued', 0, -1), nil
  for _, waiting in ipairs(dropped) do
    planned = string.match(waiting, '^%d+')
    firings.settle(key, planned, 'dropped', reason, string.match(waiting, '^%S+'))
  end
  call('DEL', key .. ':queued')
  call('ZREM', base .. 'queued', flow_id)
  return #dropped, planned
end

function firings.queue(key, flow_id, planned, reason, label, run_id, inputs)
  call('ZADD', key .. ':queued', planned, (label or digits('%d', planned)) .. ' ' .. run_id
    .. (label and ' ' .. inputs or ''))
  call('ZADD', base .. 'queued', 'NX', 0, flow_id)
  firings.settle(key, planned, 'queued', reason, label)
end

-- Takes the planned time that waits longest out of the queue; returns it, its label, the id of its run, and the inputs
-- of the cycle ("" unless it is for an event).
function firings.next_queued(key, flow_id)
  local waiting = call('ZRANGE', key .. ':queued', 0, 0)[1]
  if waiting then call('ZREM', key .. ':queued', waiting) end
  if call('EXISTS', key .. ':queued') == 0 then call('ZREM', base .. 'queued', flow_id) end
  local label, run_id, inputs = string.match(waiting or '', '^(%S+) (%S+) ?(.*)$')
  return tonumber(string.match(label or '', '^%d+')), label, run_id, inputs
end

local function forget_pause(key)
  call('HDEL', key, 'paused_by', 'paused_at', 'note', 'paused_next', 'paused_failures', 'paused_failed_cycle')
end

-- Ends a flow with the status `ended` if its schedule plans nothing more (`next_at` is 0) and none of it runs or waits.
-- Returns whether it did.
local function end_flow_that_is_over(key, status, next_at, ended)
  if (status == 'running' or status == 'paused') and next_at == 0
    and call('ZCOUNT', key .. ':cycles', STOPPING, '+inf') == 0 and call('EXISTS', key .. ':queued') == 0 then
    call('HSET', key, 'status', ended, 'next_execution', 0, 'updated_at', time)
    forget_pause(key)
    return true
  end
  return false
end
