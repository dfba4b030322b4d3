-- Starts, pauses, resumes, stops or begins to delete a flow, and puts it into the outbox for the trigger service.
-- KEYS: 1 owner, 2 hash of the flow.
-- args: base, epoch (0), now, flow_id, status (running, paused, stopped or deleting), from (statuses from which it may
--   be reached), start_at (ms, 0 for now, below 0 for a flow that begins on events; ignored when the flow is resumed
--   and its schedule is over), by, reason, passed ({first, last, count} of planned times that passed during the pause,
--   or that have come for a flow that leaves running, or false), over (whether the schedule of a paused flow
--   plans nothing more).
-- Returns {outcome (changed, unchanged, not_found, refused), the status before, runs marked as stopping ({cycle, run}
--   each), whether to call again because more are to be marked}.
--!include stopping
--!include pausing
--!include pause_text
--!include backfilling
local flow = KEYS[2]
local known = call('HMGET', flow, 'status', 'schedule_epoch', 'next_execution')
if not known[1] then return cmsgpack.pack({'not_found', '', {}, false}) end

local outcome = 'unchanged'
if known[1] ~= args.status then
  outcome = 'refused'
  for _, status in ipairs(args.from) do
    if status == known[1] then outcome = 'changed' end
  end
end
-- Ends a pause; returns whether the schedule was over when the pause began, so that nothing more is planned.
local function resume()
  local paused = call('HMGET', flow, 'paused_by', 'note', 'paused_next')
  if args.passed then firings.settle_passed(flow, args.passed, 'skipped', pause_text(paused[1], paused[2])) end
  forget_pause(flow)
  backfills.look_again_at_all(flow, args.flow_id)
  return paused[3] == '0'
end

if outcome == 'changed' and args.status == 'paused' then
  pause(flow, args.flow_id, args.by, args.reason)
elseif outcome == 'changed' then
  local first, epoch, over = 0, math.max(tonumber(known[2]) + 1, time), false
  if known[1] == 'paused' then
    over = resume() or args.over
  elseif args.status == 'running' then
    call('HDEL', flow, 'fired', 'failures')
    call('HSET', flow, 'started_epoch', epoch)
  elseif args.passed and tonumber(known[3]) == args.passed[1] then
    firings.settle_passed(flow, args.passed, 'dropped', 'the flow was stopped')
  end
  if args.status == 'running' and not over then first = args.start_at ~= 0 and args.start_at or time end
  call('HSET', flow, 'status', args.status, 'next_execution', first, 'updated_at', time, 'schedule_epoch', epoch)
  -- Keep the anchor of a flow that stops: its backfills go by the grid on which it ran.
  if first ~= 0 then call('HSET', flow, 'anchor', first) end
  if over then end_flow_that_is_over(flow, args.status, 0, 'completed') end
  if args.status == 'stopped' then
    call('HSET', flow, 'stopped_by', args.by, 'stop_reason', args.reason, 'stopped_at', time)
  elseif known[1] == 'stopped' then
    call('HDEL', flow, 'stopped_by', 'stop_reason', 'stopped_at')
  end
  call('ZADD', base .. 'outbox', time, args.flow_id)
  if args.status ~= 'running' then firings.drop_queued(flow, args.flow_id, 'the flow was stopped') end
end
local marked, more = {}, false
if args.status ~= 'running' and args.status ~= 'paused' and outcome ~= 'refused' then
  backfills.cancel_all(flow, args.flow_id, 'the flow was stopped')
  local reason = args.reason ~= '' and args.reason or 'the flow was stopped'
  marked, more = mark_stopping(args.flow_id, args.by, reason, 'user')
end
conclude()
return cmsgpack.pack({outcome, known[1], marked, more})
