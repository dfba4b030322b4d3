--!include firings
-- Backfills of a flow: `<flow>:backfill:<id>` is the record of a backfill. `<flow>:filling` holds the open runs of all
-- backfills, each scored by its backfill's id, and those that run for a node of another flow, scored 0. `key` is the
-- flow's hash.
local FILLED = 10000
-- How long a backfill is left alone that can begin no cycle, ms. The end of one of its cycles, or of a pause of its
-- flow, makes it sooner.
local IDLE = 300000
local backfills = {}

function backfills.key(key, id) return key .. ':backfill:' .. id end

-- Sets when to look at a backfill again, if it is under way: now, unless it can begin no cycle now.
function backfills.look_again(key, flow_id, id, paused)
  local known = call('HMGET', backfills.key(key, id), 'position', 'max_running')
  local idle = paused or not known[1] or known[1] == '0'
    or call('ZCOUNT', key .. ':filling', id, id) >= tonumber(known[2])
  call('ZADD', base .. 'backfills', 'XX', idle and time + IDLE or 0, flow_id .. ':' .. id)
end

-- Does so for all backfills of a flow that is no longer paused.
function backfills.look_again_at_all(key, flow_id)
  for _, id in ipairs(call('ZRANGE', key .. ':backfills', 0, -1)) do backfills.look_again(key, flow_id, id) end
end

local function record_time(key, id, planned, outcome, reason, name, run_id, count, last)
  firings.note(backfills.key(key, id), planned, outcome, reason, name, run_id, count, last, FILLED)
end

-- Ends a backfill: its records expire, and it leaves the backfills that are under way.
local function finish_backfill(key, flow_id, id, status, reason, keep_for)
  local record = backfills.key(key, id)
  call('HSET', record, 'status', status, 'ended_at', time, 'reason', reason)
  call('PEXPIRE', record, keep_for)
  call('PEXPIRE', record .. ':firings', keep_for)
  call('ZREM', base .. 'backfills', flow_id .. ':' .. id)
end

function backfills.finish_if_over(key, flow_id, id)
  local known = call('HMGET', backfills.key(key, id), 'status', 'position', 'keep_for')
  if known[1] == 'running' and known[2] == '0' and call('ZCOUNT', key .. ':filling', id, id) == 0 then
    finish_backfill(key, flow_id, id, 'completed', '', known[3])
  end
end

-- Returns what has become of a planned time, and the cycle and run that began for it. The flow's ledger forgets old
-- times, while each backfill has a ledger of its own that holds all of its times.
local function outcome_of(key, planned)
  local outcome, cycle, run = firings.of(key, planned)
  if outcome then return outcome, cycle, run end
  for _, id in ipairs(call('ZRANGE', key .. ':backfills', 0, -1)) do
    outcome, cycle, run = firings.of(backfills.key(key, id), planned)
    if outcome == 'fired' then return outcome, cycle, run end
  end
end

-- Moves a backfill on from a planned time. Returns 'begun' when the cycle of that time is to begin, 'duplicate' when
-- one had begun before, 'settled' when nothing may begin now.
function backfills.advance(key, flow_id, flow_status, id, planned, following)
  local record = backfills.key(key, id)
  local known = call('HMGET', record, 'status', 'position', 'max_running')
  if flow_status == 'paused' then backfills.look_again(key, flow_id, id, true) end
  if known[1] ~= 'running' or tonumber(known[2]) ~= planned or flow_status == 'paused'
    or call('ZCOUNT', key .. ':filling', id, id) >= tonumber(known[3]) then return 'settled' end
  call('HSET', record, 'position', following)
  local outcome, cycle, run = outcome_of(key, planned)
  if outcome ~= 'fired' and outcome ~= 'queued' then
    call('HINCRBY', record, 'begun', 1)
    return 'begun'
  end
  call('HINCRBY', record, 'skipped', 1)
  local reason = 'it was queued'
  if outcome == 'fired' then
    reason = 'cycle ' .. cycle .. ' had already begun for this time'
    if call('EXISTS', run_key(flow_id, cycle, run)) == 0 then
      reason = reason .. ', and is no longer on record'
      call('HINCRBY', record, 'expired', 1)
    end
  end
  record_time(key, id, planned, 'skipped', reason)
  backfills.look_again(key, flow_id, id)
  backfills.finish_if_over(key, flow_id, id)
  return 'duplicate'
end

-- Notes that a run has begun for a backfill.
function backfills.begun(key, flow_id, id, planned, name, run_id)
  call('ZADD', key .. ':filling', id, name)
  firings.note(key, planned, 'fired', 'backfill ' .. id, name, run_id)
  record_time(key, id, planned, 'fired', '', name, run_id)
  backfills.look_again(key, flow_id, id)
end

-- Notes that a run of a backfill has ended.
function backfills.ended(key, flow_id, id, name, ending)
  call('ZREM', key .. ':filling', name)
  if call('EXISTS', backfills.key(key, id)) == 0 then return end
  call('HINCRBY', backfills.key(key, id), ending == 'completed' and 'completed' or 'failed', 1)
  backfills.look_again(key, flow_id, id)
  backfills.finish_if_over(key, flow_id, id)
end

-- Cancels a backfill: no more of its cycles begin, and those that run go on. Returns whether it was under way.
function backfills.cancel(key, flow_id, id, reason)
  local known = call('HMGET', backfills.key(key, id), 'status', 'position', 'last', 'times', 'begun', 'skipped',
    'keep_for')
  if known[1] ~= 'running' then return false end
  if known[2] ~= '0' then
    local left = tonumber(known[4]) - tonumber(known[5]) - tonumber(known[6])
    record_time(key, id, known[2], 'dropped', reason, nil, nil, left, known[3])
  end
  finish_backfill(key, flow_id, id, 'cancelled', reason, known[7])
  return true
end

function backfills.cancel_all(key, flow_id, reason)
  for _, id in ipairs(call('ZRANGE', key .. ':backfills', 0, -1)) do backfills.cancel(key, flow_id, id, reason) end
end
