-- Ends what has run out: leases, attempts past their time, stops that were not obeyed, waits for a worker.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, spare (0, or for how many more ms to leave
-- alone what began or became ready earlier than one lease before the end of that time: nobody was there to renew or
-- take it), by (0, or the time in ms after which nothing is ended and the effects are late). Returns Effects; results
-- name the node tasks.
--!include give_back
local AT_ONCE = 250

-- Returns the error of the clock that has run out for an attempt, nil when it was the lease.
local function expired_clock_error(record, entry)
  local close_at, beat_by = record.close_at or 0, tonumber(read_rest(record).beat_by)
  local attempt = 'attempt ' .. record.attempt
  if entry.total and tonumber(record.total_at) <= time then
    return {code = 'TOTAL_TIMEOUT', message = attempt .. ' was still running when the total time of '
      .. clocks.duration_text(entry.total) .. ' ended'}
  elseif close_at > 0 and close_at <= time then
    return {code = 'TIMEOUT', message = attempt .. ' took longer than its timeout of '
      .. clocks.duration_text(close_at - tonumber(record.started_at)) .. ' on worker ' .. record.worker_id}
  elseif entry.beat and beat_by <= time then
    return {code = 'HEARTBEAT_TIMEOUT', message = attempt .. ' sent no heartbeat for '
      .. clocks.duration_text(entry.beat) .. ' on worker ' .. record.worker_id}
  end
end

-- Whether a ready node task waits for a limit, not for a worker.
local function waits_for_limit(record, entry, comp)
  return read_rest(record).blocked and record.blocked ~= '' or slots.room_of_type(entry.type) <= 0
    or slots.room_of_user(comp.user_id) <= 0
end

local function reap(record)
  local comp = component_of(record)
  local entry = comp and node(comp.plan, record.index)
  if entry and entry.lost then return end
  local error = comp and not record.stop and expired_clock_error(record, entry)
  if not error then return give_back(record, true) end
  if error.code == 'HEARTBEAT_TIMEOUT' then
    stopping.add_termination(record, stopping.system_mark(error.message))
  end
  logs.add_error(record, error)
  release_lease(record)
  set_state(record, 'nonce', '')
  retries.fail(record, comp, error)
end

local spare_till = time + args.spare
local since = args.spare > 0 and spare_till - limits.lease_ms or 0

local function end_attempts()
  for _, id in ipairs(index_call('ZRANGEBYSCORE', base .. 'inflight', '-inf', time, 'LIMIT', 0, AT_ONCE)) do
    local record = task(id)
    if record and record.status == 'running' and tonumber(record.started_at) < since then
      leasing.begin(record, spare_till)
    elseif record and record.status == 'running' then
      effects.results[#effects.results + 1] = id
      reap(record)
    else
      remove('inflight', id)
    end
  end
end

local function end_wait(record, comp, code, message)
  effects.results[#effects.results + 1] = record.id
  dequeue(record, comp)
  suspension.time_out(record, comp, code, message)
end

local function end_waits()
  for _, id in ipairs(index_call('ZRANGEBYSCORE', base .. 'start_deadlines', '-inf', time, 'LIMIT', 0, AT_ONCE)) do
    local record = task(id)
    local comp = record and record.status == 'pending' and component_of(record)
    if comp then
      local entry = node(comp.plan, record.index)
      local total_at = entry.total and tonumber(read_rest(record).total_at)
      if entry.lost then
        remove('start_deadlines', id)
      elseif total_at and total_at <= time then
        end_wait(record, comp, 'TOTAL_TIMEOUT', 'no attempt succeeded within the total time of '
          .. clocks.duration_text(entry.total))
      elseif tonumber(record.ready_at) < since then
        call('ZADD', base .. 'start_deadlines', math.min(spare_till, total_at or HUGE), id)
      elseif waits_for_limit(record, entry, comp) then
        call('ZADD', base .. 'start_deadlines', math.min(time + entry.start, total_at or HUGE), id)
      else
        end_wait(record, comp, 'START_TIMEOUT', 'no worker that offers "' .. entry.type .. '" took it within '
          .. clocks.duration_text(entry.start))
      end
    else
      remove('start_deadlines', id)
    end
  end
end

if args.by > 0 and time > args.by then
  effects.late = true
else
  end_attempts()
  end_waits()
end
budget = budget - #effects.results
return cmsgpack.pack(conclude())
