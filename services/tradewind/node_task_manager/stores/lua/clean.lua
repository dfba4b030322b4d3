-- Cleans up after ended runs, in bounded steps, for one replica at a time: the one that holds the lease `cleaner`.
-- Nothing is cleaned until the node tasks of lapsed leases have come back. Of runs that stay open, the scheduler is
-- asked whether they are.
-- KEYS[1] any key of the shard. args: base, now, limits, cleaner (the calling replica), place (where to go on in
-- node_tasks_list; nil: leave that list), recall (where to go on calling up open runs; nil: leave them).
-- Returns {leads, waits, keys (touched), runs, node_tasks, entries (removed), place, recall, more, behind (for how many
-- ms the first entry left in to_clean has been due), events}.
--!include walks
--!include leading
--!include scheduler_events
budget = limits.clean_keys
walks.swept = {runs = 0, node_tasks = 0, entries = 0}
local MOST = 100

-- Whether the scheduler has acknowledged all events of a partition up to a time: until then it may ask for ended runs.
local first_pending = {}
local function acknowledged(partition, at)
  if first_pending[partition] == nil then
    local first = index_call('XRANGE', base .. 'events:' .. partition, '-', '+', 'COUNT', 1)[1]
    first_pending[partition] = first and cmsgpack.unpack(first[2][2])[1]
  end
  return not first_pending[partition] or first_pending[partition] > at
end

-- Keeps the runs of a cycle up to a number, and their log, until `till`. One of them may be open, if its flow was
-- deleted and made again.
local function keep_cycle(flow, cycle, number, till)
  local ttl = string.format('%.0f', math.max(till - time, 1))
  for at = number, 0, -1 do
    local run = flow .. ':' .. cycle .. ':' .. at
    if walks.ended_at(run) then call('PEXPIRE', base .. 'run:' .. run, ttl) end
    walks.spend(1)
  end
  call('PEXPIRE', base .. 'logs:' .. flow .. ':' .. cycle, ttl)
end

local function is_gone(run) return call('EXISTS', base .. 'run:' .. run) == 0 end

-- Removes a flow's ended runs, except the `keep` with the highest numbers.
local function trim(flow, keep, run)
  local index = base .. 'flow_runs:' .. flow
  local excess = index_call('ZCOUNT', index, '-inf', '(' .. flow_runs.OPEN) - keep
  if excess > MOST then call('ZADD', base .. 'to_clean', time, 'run:' .. run) end
  for _, name in ipairs(excess > 0 and call('ZRANGE', index, 0, math.min(excess, MOST) - 1) or {}) do
    walks.spend(2)
    call('ZREM', index, name)
    local cycle, number = flow_runs.parts(name)
    if cycle then walks.begin(flow .. ':' .. cycle .. ':', number) end
  end
  -- Runs that expired by age leave the index at its lower end, a little faster than new ones enter it.
  for _, name in ipairs(call('ZRANGE', index, 0, 1)) do
    if is_gone(flow .. ':' .. name) then walks.forget('flow_runs:' .. flow, name) end
  end
end

-- Asks the scheduler, and again after a while, whether a run that is open has ended: the store may have lost its end.
-- No events pile up while no scheduler takes them.
local function confirm(run)
  for _, id in ipairs(component_ids(run)) do
    local comp = component(run, id)
    if comp and comp.status ~= 'finished' then
      if acknowledged(comp.partition, time - limits.confirm_ms) then
        walks.spend(1)
        scheduler.add_event(comp.partition, 'open', {time, run, comp.run_id, id, comp.user_id,
          flow_runs.begun_at(run, id)})
      end
      call('ZADD', base .. 'to_clean', time + limits.confirm_ms, 'run:' .. run)
    end
  end
end

local CLEAN = {}

-- Adds a run that ended a while ago to the ended ones of its flow, and trims these.
function CLEAN.run(run)
  local flow, cycle, number = string.match(run, '^([^:]+):(%d+):(%d+)$')
  if not flow then return end
  local name = cycle .. ':' .. number
  number = tonumber(number)
  if is_gone(run) then
    walks.forget('flow_runs:' .. flow, name)
    return keep_cycle(flow, cycle, number - 1, time + limits.settle_ms)
  end
  local at, partition = walks.ended_at(run)
  if not at then return confirm(run) end
  if not acknowledged(partition, at) then
    return call('ZADD', base .. 'to_clean', time + limits.settle_ms, 'run:' .. run)
  end
  -- The run stays as long as the latest run of its cycle, which represents it in the index.
  local left = call('PTTL', base .. 'run:' .. flow .. ':' .. cycle .. ':' .. number + 1)
  if left == -1 then return call('PERSIST', base .. 'run:' .. run) end
  if left >= 0 then return call('PEXPIRE', base .. 'run:' .. run, left) end
  local keep, keep_for = string.match(call('HGET', base .. 'run:' .. run, 'keep') or '0 0', '^(%d+) (%d+)$')
  local till = at + tonumber(keep_for)
  if till > at and till <= time then
    walks.forget('flow_runs:' .. flow, name)
    walks.begin(flow .. ':' .. cycle .. ':', number)
  else
    index_call('ZADD', base .. 'flow_runs:' .. flow, flow_runs.number(name), name)
    call('ZADD', base .. 'to_clean', 'NX', time + limits.retention_ms, 'flow:' .. flow)
    if till > at or number > 0 or call('PTTL', base .. 'run:' .. run) == -1 then
      keep_cycle(flow, cycle, number, till > at and till or at + limits.retention_ms)
    end
  end
  walks.spend(3)
  trim(flow, tonumber(keep) > 0 and tonumber(keep) or limits.keep_cycles, run)
end

-- Clears a flow's index of expired runs, for a flow that has not run for a while: no other run does it.
function CLEAN.flow(flow)
  local index, gone = 'flow_runs:' .. flow, 0
  for _, name in ipairs(index_call('ZRANGE', base .. index, 0, MOST - 1)) do
    if is_gone(flow .. ':' .. name) then
      gone = gone + 1
      walks.forget(index, name)
    end
  end
  if call('EXISTS', base .. index) == 1 then
    call('ZADD', base .. 'to_clean', gone == MOST and time or time + limits.retention_ms, 'flow:' .. flow)
  end
end

-- Clears the list of a silent worker of all that is not a valid lease.
function CLEAN.worker(worker)
  local list = 'worker_tasks:' .. worker
  for _, id in ipairs(index_call('ZRANGEBYSCORE', base .. list, '-inf', time, 'LIMIT', 0, MOST)) do
    walks.spend(1)
    local record = task(id)
    if not record or record.status ~= 'running' or record.worker_id ~= worker then walks.forget(list, id) end
  end
  if call('EXISTS', base .. list) == 1 then
    call('ZADD', base .. 'to_clean', time + limits.silent_ms, 'worker:' .. worker)
  end
end

local function is_on_record(id)
  local run = run_of(id)
  return call('HEXISTS', base .. 'run:' .. run, place_of(id, run) .. 'state') == 1
end

-- Removes dead letters whose records are gone.
function CLEAN.dead_letters(user)
  local list = 'dead_letters:' .. user
  for _, id in ipairs(index_call('ZRANGE', base .. list, 0, MOST - 1)) do
    walks.spend(1)
    if not is_on_record(id) then walks.forget(list, id) end
  end
  if call('EXISTS', base .. list) == 1 then call('ZADD', base .. 'to_clean', time + limits.tombstone_ms, list) end
end

local function clean_due()
  for _, name in ipairs(index_call('ZRANGEBYSCORE', base .. 'to_clean', '-inf', time, 'LIMIT', 0, MOST)) do
    if budget <= 0 then return end
    walks.spend(1)
    call('ZREM', base .. 'to_clean', name)
    local kind, rest = string.match(name, '^([^:]+):(.+)$')
    if CLEAN[kind] then CLEAN[kind](rest) end
  end
end

-- Makes open runs due, so that later steps ask the scheduler about them; leaves out the first `skip` entries of
-- `to_clean` that are not due yet, and are no open runs. Returns how many to leave out in the next step, nil after the
-- last one.
local function recall(skip)
  local later, due = string.format('(%.0f', time + limits.settle_ms), {}
  local found = index_call('ZRANGE', base .. 'to_clean', later, '+inf', 'BYSCORE', 'LIMIT', skip, MOST)
  walks.spend(#found)
  for _, name in ipairs(found) do
    if string.sub(name, 1, 4) == 'run:' then
      due[#due + 1] = stamp
      due[#due + 1] = name
    else
      skip = skip + 1
    end
  end
  in_pieces('ZADD', base .. 'to_clean', due)
  if #found == MOST then return skip end
end

-- Takes ad-hoc runs whose records have expired out of the lists of their users.
local function unlist_expired()
  local most = math.max(budget, 0)
  for _, name in ipairs(index_call('ZRANGEBYSCORE', base .. 'ended_runs', '-inf', time, 'LIMIT', 0, most)) do
    local user, run = string.match(name, '^([^:]+):(.+)$')
    if user then walks.forget(user_runs.list(user, run), run) end
    call('ZREM', base .. 'ended_runs', name)
    walks.spend(1)
  end
end

-- Goes on through the list of all node tasks, oldest first, and removes those without a record. Returns the place at
-- which to go on, nil after the last one that is old enough.
local function sweep_list(from)
  local list, gone, count = base .. 'node_tasks_list', {}, math.min(budget, MOST)
  if count <= 0 then return from end
  local oldest = index_call('ZRANGE', list, from, from + count - 1, 'WITHSCORES')
  local done = #oldest < 2 * count
  for i = 1, #oldest, 2 do
    if tonumber(oldest[i + 1]) > time - limits.retention_ms then
      done = true
      break
    end
    walks.spend(1)
    if not is_on_record(oldest[i]) then gone[#gone + 1] = oldest[i] else from = from + 1 end
  end
  in_pieces('ZREM', list, gone)
  walks.swept.entries = walks.swept.entries + #gone
  if not done then return from end
end

local waits, place, recalled, more, behind = false, args.place, nil, false, 0
local function clean()
  waits = #index_call('ZRANGEBYSCORE', base .. 'inflight', '-inf', time, 'LIMIT', 0, 1) > 0
  if waits then return end
  if args.recall then
    recalled, more = recall(args.recall), true
    return
  end
  walks.go_on()
  clean_due()
  walks.go_on()
  unlist_expired()
  if args.place then place = sweep_list(args.place) end
  local due = index_call('ZRANGEBYSCORE', base .. 'to_clean', '-inf', time, 'WITHSCORES', 'LIMIT', 0, 1)
  behind = due[2] and time - due[2] or 0
  more = place ~= nil or budget <= 0 or call('EXISTS', base .. 'walks') == 1 or #due > 0
  for name, count in pairs(walks.swept) do
    if count > 0 then index_call('HINCRBY', base .. 'queue:cleaned', name, count) end
  end
end

local leader = leads(args.cleaner)
if leader then
  clean()
  scheduler.write_last()
end
return cmsgpack.pack({leads = leader, waits = waits, keys = limits.clean_keys - budget, runs = walks.swept.runs,
  node_tasks = walks.swept.node_tasks, entries = walks.swept.entries, place = place, recall = recalled, more = more,
  behind = behind, events = effects.events})
