--!include answers
--!include stopping
--!include events
-- Settles times that are due by a flow's schedule, and events. `flow` comes from `flow_of`, `plan` from `plan_of`.
local due = {}

-- Returns a plan of begin_cycles with named fields. `label` is the label of an event, `inputs` are those of an event
-- that waited. The plan is `followed` by `next_at` when the cycle begins for the time that is due, not for one that
-- waited; such a cycle has the `run_id` that was asked for when its time was due.
function due.plan_of(packed, run_id)
  local queued, at, next_at, missed, most, once, schedule_epoch, ahead, event = unpack(packed, 1, 9)
  return {queued = queued, at = at, next_at = next_at, missed = missed, most = most, once = once,
    schedule_epoch = schedule_epoch, ahead = ahead, event = event, run_id = run_id, label = event and at .. event[1],
    inputs = nil, followed = false}
end

-- Returns the earlier answer to a due time, or nil. If the time is still planned, this schedule did not answer it: a
-- backfill began its cycle, or another schedule planned it. Then the schedule goes on after that time.
local function answered_before(flow, plan, planned)
  local outcome, cycle, run, run_id = firings.of(flow.key, plan.at)
  if not outcome then return nil end
  local next_at = flow.next_at
  if next_at == plan.at then
    next_at = planned > plan.at and planned or plan.next_at
    call('HSET', flow.key, 'next_execution', next_at)
    end_flow_that_is_over(flow.key, 'running', next_at, 'completed')
  end
  if outcome ~= 'fired' then return answer('settled', flow.revision, {next_at = next_at}) end
  return answer('duplicate', flow.revision, {cycle = cycle, run = run, run_id = run_id, next_at = next_at})
end

-- Returns the answer when nothing may begin, whatever runs; nil when a cycle may. `same_revision` says whether the
-- current revision is the one asked for.
function due.refusal(flow, plan, planned, same_revision)
  if plan.event and settle_event(flow.key, flow.status, plan.at, plan.schedule_epoch, same_revision, plan.event) then
    return answer('settled', flow.revision, {next_at = flow.next_at})
  end
  if not plan.queued and not plan.event and plan.schedule_epoch < flow.schedule_epoch then
    return answer('stale_epoch', flow.revision)
  end
  if flow.status ~= 'running' then return answer('not_running', flow.revision) end
  if not plan.queued then return answered_before(flow, plan, planned) end
end

-- Applies the overlap policy to a planned time while the cycle `open` runs, or (nil) the planned time that waits
-- longest is about to begin: it is queued, dropped, or takes the place of others. Returns whether runs were marked as
-- stopping, and by how many the number of waiting planned times has grown.
local function apply_overlap(flow, plan, planned, open, inputs)
  local key, flow_id, label = flow.key, flow.id, plan.label
  local running = open and 'cycle ' .. string.match(open, '^%d+') .. ' was running'
    or 'an earlier cycle was about to begin'
  local most = (flow.overlap == 'queue_one' and 1 or QUEUE) + (open and 0 or 1)
  local waiting = call('ZCARD', key .. ':queued')
  if flow.overlap == 'skip' then
    firings.settle(key, planned, 'skipped', running, label)
  elseif flow.overlap == 'cancel_running' then
    firings.drop_queued(key, flow_id, 'a later planned time took its place')
    firings.queue(key, flow_id, planned, open and running .. ' and was asked to stop' or running, label, plan.run_id,
      inputs)
    return #mark_stopping(flow_id, 'scheduler', 'the next cycle is due and overlap is cancel_running', 'scheduler',
      true) > 0, 1 - waiting
  elseif waiting >= most then
    firings.settle(key, planned, 'dropped', running .. ', with ' .. waiting .. ' already waiting', label)
  else
    firings.queue(key, flow_id, planned, running, label, plan.run_id, inputs)
    return false, 1
  end
  return false, 0
end

-- Settles a planned time that is due (0 for none). Returns the answer when no cycle begins, as while it is `blocked` by
-- the cycle `open` or by planned times that wait; else nil, the planned time, and the inputs of the cycle.
function due.settle(flow, plan, planned, blocked, open, inputs)
  if plan.queued then
    planned, plan.label, plan.run_id, plan.inputs = firings.next_queued(flow.key, flow.id)
    if not planned then return answer('settled', flow.revision) end
    return nil, planned, plan.inputs ~= '' and plan.inputs or inputs
  end
  local missed = plan.missed
  if missed then firings.settle_passed(flow.key, missed, 'missed', 'found due too late') end
  -- A new revision may allow fewer cycles than have begun.
  if planned > 0 and plan.most > 0 and tonumber(call('HGET', flow.key, 'fired') or 0) >= plan.most then
    firings.settle(flow.key, planned, 'dropped', 'max_cycles was reached', plan.label)
    planned, plan.next_at = 0, 0
  end
  local stopping, cycles = false, 1
  if planned > 0 and blocked then stopping, cycles = apply_overlap(flow, plan, planned, open, inputs) end
  if planned > 0 and plan.most > 0 and call('HINCRBY', flow.key, 'fired', cycles) >= plan.most then plan.next_at = 0 end
  -- Events keep coming until the trigger service learns that no more are wanted.
  if plan.event and plan.next_at == 0 then call('ZADD', base .. 'outbox', time, flow.id) end
  if planned == 0 or blocked then
    call('HSET', flow.key, 'next_execution', plan.next_at)
    end_flow_that_is_over(flow.key, 'running', plan.next_at, 'completed')
    return answer('settled', flow.revision, {next_at = plan.next_at, stopping = stopping})
  end
  plan.followed = true
  return nil, planned, inputs
end

-- Notes that a cycle has begun for a planned time.
function due.begun(key, plan, planned, name, run_id)
  -- A time that is due has no line yet: otherwise that line would have answered it.
  local write = plan.followed and planned == plan.at and firings.add or firings.note
  write(key, planned, 'fired', '', name, run_id, nil, plan.label)
end
