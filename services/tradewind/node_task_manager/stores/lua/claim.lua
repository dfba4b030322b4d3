--!include when_full
--!include sessions
-- Gives ready node tasks to vacancies: users take turns, each user's go by priority and age. Uses args: vacancies,
-- nonce.
local HEADS, CLAIM_BYTES = 32, 2 * 1024 * 1024
local claims, carried, inputs_of_runs, lease_end = 0, 0, {}, nil

local function current_vacancies()
  local open = {}
  for _, vacancy in ipairs(args.vacancies) do
    if sessions.is_latest(vacancy.worker_id, vacancy.session) then
      open[#open + 1] = vacancy
    else
      effects.stale_workers = effects.stale_workers or {}
      table.insert(effects.stale_workers, vacancy.worker_id)
    end
  end
  return open
end

-- Returns the vacancies for each node type.
local function takers_of(open)
  local takers = {}
  for _, vacancy in ipairs(open) do
    for _, node_type in ipairs(vacancy.node_types) do
      local taking = takers[node_type]
      if taking then taking[#taking + 1] = vacancy else takers[node_type] = {vacancy} end
    end
  end
  return takers
end

-- Returns when each type that has both takers and waiting node tasks was last served.
local function served_at(takers)
  local types, served = {}, {}
  for node_type in pairs(takers) do types[#types + 1] = node_type end
  for first = 1, #types, 1000 do
    local last = math.min(first + 999, #types)
    for i, at in ipairs(call('ZMSCORE', base .. 'ready_types', unpack(types, first, last))) do
      if at then served[types[first + i - 1]] = tonumber(at) end
    end
  end
  return served
end

-- Returns the vacancy of the least loaded worker: the one with the greatest part of its capacity free.
local function roomiest(vacancies)
  if #vacancies == 1 then return vacancies[1] end
  local best, most = nil, 0
  for _, vacancy in ipairs(vacancies) do
    local free = vacancy.credits / vacancy.capacity
    if free > most then best, most = vacancy, free end
  end
  return best
end

local function room(vacancies)
  local sum = 0
  for _, vacancy in ipairs(vacancies) do sum = sum + vacancy.credits end
  return sum
end

-- Returns the values of the live edges into a node, in the order of the plan, and whether they are to be read outside
-- the claim, because there are too many or they are too large together.
local function inputs_of(record, entry)
  local INPUT_BYTES = 256 * 1024
  local into, fields = entry.into, entry.fields
  if entry.inputs == 0 then return {}, false end
  if not into then return {}, true end
  if #into == 1 then
    local field = fields[1]
    local value = record[field] or not record.created and stored(record, field)
    if not value then return {}, false end
    if #value > INPUT_BYTES then return {}, true end
    carried = carried + #value
    return {{into[1], value}}, false
  end
  local inputs, size, before = {}, 0, not record.created and stored_all(record, fields)
  for i = 1, #into do
    local value = record[fields[i]] or before and before[i]
    if value then
      inputs[#inputs + 1] = {into[i], value}
      size = size + #value
    end
  end
  if size > INPUT_BYTES then return {}, true end
  carried = carried + size
  return inputs, false
end

-- Returns the inputs of the run, which entry nodes get; a component that was withheld may have its own.
local function inputs_of_run(comp)
  local run = comp.run
  if comp.early == 'freed' then
    local own = stored(comp, 'inputs')
    if own then
      carried = carried + #own
      return own
    end
  end
  local inputs = comp.has_inputs and inputs_of_runs[run]
  if inputs == nil then
    inputs = call('HGET', base .. 'run:' .. run, 'inputs')
    inputs_of_runs[run] = inputs
  end
  if inputs then carried = carried + #inputs end
  return inputs
end

-- Adds an Assignment; `waited` is how many ms the node task was ready before this attempt began.
local function add_assignment(record, comp, entry, close_at, waited)
  local inputs, outside = inputs_of(record, entry)
  local given, attempt = effects.assignments, record.attempt
  given[#given + 1] = {record.worker_id, record.id, record.nonce, attempt, comp.id, comp.plan, record.index,
    comp.run_id, comp.user_id, inputs, outside, entry.inputs == 0 and inputs_of_run(comp) or '', comp.traceparent or '',
    comp.planned, close_at, waited, attempt > 1 and read_rest(record).resumed and cmsgpack.unpack(record.resumed) or nil}
end

-- Returns when an attempt that begins now starts, when its time is over (0 for never), and when its lease lapses. An
-- attempt of a cycle that is due in a moment starts at the planned time.
local function clocks_of(record, entry, comp, attempt)
  local early = comp.planned and comp.planned > time
  local close, plain = entry.close, not early and attempt == 1 and not entry.total and not entry.beat
  if plain and (close == 0 or close + limits.stop_grace >= limits.lease) then
    lease_end = lease_end or string.format('%.0f', time + limits.lease)
    return stamp, close > 0 and time + close or 0, lease_end
  end
  local begin = early and math.min(comp.planned, time + limits.lead) or time
  local close_at = close > 0 and begin + close or 0
  if entry.total then
    local total_at = tonumber(read_rest(record).total_at)
    close_at = close_at > 0 and math.min(close_at, total_at) or total_at
  end
  local deadline = time + limits.lease
  if close_at > 0 then deadline = math.min(deadline, close_at + limits.stop_grace) end
  if entry.beat then
    note(record, 'beat', entry.beat)
    note(record, 'beat_by', begin + entry.beat)
    deadline = math.min(deadline, begin + entry.beat)
  end
  return early and string.format('%.0f', begin) or stamp, close_at, deadline
end

-- Gives a node task to a vacancy; `own` are its own limits.
local assign
do
  local DIGITS = {[0] = '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'}
  function assign(record, entry, comp, own, vacancy)
    take_slots(record, entry, comp, own)
    local attempt, ready_at, place = (record.attempt or 0) + 1, record.ready_at, #effects.assignments
    local started_at, close_at, deadline = clocks_of(record, entry, comp, attempt)
    local waited = ready_at and ready_at ~= stamp and time - ready_at or 0
    if waited < 0 then waited = 0 end
    record.status = 'running'
    record.attempt, record.worker_id, record.started_at, record.close_at = attempt, vacancy.worker_id, started_at, close_at
    record.nonce = args.nonce .. (DIGITS[place] or string.format('%x', place))
    record.noted = true
    changed(comp, 1, record, 'running')
    if attempt > 1 then
      note(record, 'progress', 0)
      note(record, 'message', '')
      note(record, 'step', '')
    end
    if entry.retry then retry_budget.count(comp) end
    leasing.begin(record, deadline)
    -- Only node tasks that were ready before this script are in `start_deadlines`.
    if (entry.start > 0 or entry.total) and not record.start_by then remove('start_deadlines', record.id) end
    vacancy.credits = vacancy.credits - 1
    add_assignment(record, comp, entry, close_at, waited)
  end
end

-- Returns the cost of a turn: the greater the user's weight, the less. It matters only while other users wait as well.
local weights = {}
local function turn_cost(user)
  local TURN = 1000000
  if not limits.weighted then return TURN end
  if not weights[user] then
    weights[user] = tonumber(call('HGET', base .. 'user_weights', user) or 1)
  end
  return math.floor(TURN / weights[user] + 0.5)
end

-- Takes up to `wanted` of the first node tasks of the user whose turn it is. Returns them with their ranks: none if the
-- user is at the limit, and is parked; nil when the type has no users left. Also returns the user, where in virtual
-- time the turn begins, and whether the user has left the ring with it.
local function take_turn(node_type, wanted)
  local ring = base .. 'ring:' .. node_type
  local users = call('ZRANGE', ring, 0, 1, 'WITHSCORES')
  if #users == 0 then return nil end
  local user, open, alone = users[1], room_of_user(users[1]), #users == 2
  local taken, left, count = {}, true, alone and math.min(wanted, HEADS, open) or 1
  if open <= 0 then
    call('ZADD', base .. 'parked', 0, user .. ':' .. node_type)
  else
    local queue = base .. 'ready:' .. node_type .. ':' .. user
    taken = call('ZPOPMIN', queue, count)
    left = #taken < 2 * count or call('EXISTS', queue) == 0
  end
  if left then
    call('ZREM', ring, user)
    if alone then call('ZREM', base .. 'ready_types', node_type) end
  end
  return taken, user, tonumber(users[2]), left and (alone and 'last' or 'left')
end

-- Gives a node task to a vacancy, unless one of its own limits is full; returns whether it did.
local held_back, next_token = {}, nil
fresh(function()
  claims, carried, lease_end, next_token = 0, 0, nil, nil
  if next(inputs_of_runs) then inputs_of_runs = {} end
  if next(weights) then weights = {} end
  if next(held_back) then held_back = {} end
end)
local function assign_within_limits(record, comp, vacancies, rank)
  local entry = record.entry or node(comp.plan, record.index)
  local own = own_limits(entry, comp)
  if own then
    for i = 1, #own do
      if slots.is_full(own[i]) then
        held_back[entry.type] = (held_back[entry.type] or 0) + 1
        when_full.hold_back(record, entry, comp, own[i], own, rank)
        return false
      end
    end
  end
  assign(record, entry, comp, own, roomiest(vacancies))
  return true
end

local function serve(node_type, vacancies)
  local wanted, begun = math.min(room(vacancies), room_of_type(node_type)), nil
  while wanted > 0 and claims > 0 and carried < CLAIM_BYTES and (held_back[node_type] or 0) < HEADS do
    local taken, user, at, left = take_turn(node_type, wanted)
    if not taken then break end
    local given = 0
    for i = 1, #taken, 2 do
      claims = claims - 1
      local record = task(taken[i], 'input')
      local comp = record and record.status == 'pending' and component_of(record)
      -- A component that is being stopped leaves its node tasks to the stop.
      if comp and not comp.stop and assign_within_limits(record, comp, vacancies, taken[i + 1]) then given = given + 1 end
    end
    wanted = wanted - given
    local cost = given > 0 and turn_cost(user) or 0
    if left == 'left' then
      remember_leaver(node_type, user, at + given * cost)
    elseif not left and given > 0 then
      call('ZINCRBY', base .. 'ring:' .. node_type, given * cost, user)
    end
    begun = left ~= 'last' and at + math.max(given - 1, 0) * cost
  end
  if begun then
    call('ZADD', base .. 'left:' .. node_type, begun, '')
    call('ZREMRANGEBYSCORE', base .. 'left:' .. node_type, '-inf', string.format('(%.0f', begun))
  elseif begun == false then
    call('DEL', base .. 'left:' .. node_type)
  end
  if call('ZSCORE', base .. 'ready_types', node_type) then
    call('ZADD', base .. 'ready_types', time, node_type)
    -- Node tasks that a limit holds back are let in when a slot of it comes free.
    local rate = limits.type_rates and limits.type_rates[node_type]
    local wait = rate and slots.token_in(node_type, rate) or 0
    if wait > 0 then next_token = math.min(next_token or wait, wait) end
    if room_of_type(node_type) > 0 then
      effects.ready_types = effects.ready_types or {}
      table.insert(effects.ready_types, node_type)
    end
  end
end

-- Returns the queues of each type that has takers, had none waiting and only grew in this script; writes the others.
local function fresh_queues(takers, served)
  local fresh, shrunk, rest = {}, {}, {}
  for _, queue in pairs(queues) do shrunk[queue.type] = shrunk[queue.type] or #queue.removed > 0 or queue.rejoins end
  for _, queue in pairs(queues) do
    local node_type = queue.type
    if shrunk[node_type] or served[node_type] or not takers[node_type] then
      rest[#rest + 1] = queue
      if takers[node_type] then served[node_type] = served[node_type] or time end
    elseif fresh[node_type] then
      table.insert(fresh[node_type], queue)
    else
      fresh[node_type] = {queue}
    end
  end
  write_queues(rest)
  for node_type, did in pairs(shrunk) do
    -- A type whose queues were empty for a moment is served like a new one.
    if did and takers[node_type] then served[node_type] = tonumber(call('ZSCORE', base .. 'ready_types', node_type) or nil) end
  end
  return fresh
end

local function earlier(a, b)
  local first, second = tonumber(records[a].rank), tonumber(records[b].rank)
  return first < second or (first == second and a < b)
end

-- Gives node tasks that became ready in this script straight to vacancies, if all of their type find room: users in
-- turn, each user's in the order that a queue would have. Queues the others; returns whether there are any.
local function hand_out(node_type, fresh, vacancies)
  local count, longest, bound = 0, 0, limits.bounded or limits.weighted
  for _, queue in ipairs(fresh) do
    count, longest = count + #queue.added / 2, math.max(longest, #queue.added)
    bound = bound or queue.bound
  end
  -- If limits hold some back, or users have weights, only the queues can tell whose turn it is.
  if count > math.min(room(vacancies), claims, room_of_type(node_type)) or bound and #fresh > 1 then
    write_queues(fresh)
    return true
  end
  if #fresh > 1 then table.sort(fresh, function(a, b) return a.user < b.user end) end
  local lists, left = {}, false
  for i, queue in ipairs(fresh) do
    local ids = {}
    for at = 2, #queue.added, 2 do ids[#ids + 1] = queue.added[at] end
    if #ids > 1 then table.sort(ids, queue.ranked and earlier or nil) end
    lists[i], queue.added = ids, {}
  end
  for at = 1, longest / 2 do
    for i, queue in ipairs(fresh) do
      local record = lists[i][at] and records[lists[i][at]]
      if record and record.status == 'pending' then
        if record.comp.stop or carried >= CLAIM_BYTES or room_of_user(queue.user) <= 0 then
          table.insert(queue.added, record.rank)
          table.insert(queue.added, record.id)
          left = true
        else
          claims = claims - 1
          assign_within_limits(record, record.comp, vacancies, record.rank)
        end
      end
    end
  end
  if left then write_queues(fresh) end
  return left
end

-- Leaves node tasks that became ready in this script waiting for a taker, some with a deadline; notifies other
-- processes.
local function leave_waiting()
  if not next(queues) then return end
  local published = {}
  for _, queue in pairs(queues) do
    for i = 2, #queue.added, 2 do
      local record = records[queue.added[i]]
      if record.status == 'pending' then
        if record.start_by then put('start_deadlines', record.id, record.start_by) end
        if not published[queue.type] then
          published[queue.type] = true
          call('PUBLISH', base .. 'wake', queue.type)
        end
      end
    end
    if queue.rejoins and not published[queue.type] then
      published[queue.type] = true
      call('PUBLISH', base .. 'wake', queue.type)
    end
  end
  queues = {}
end

-- Notifies other processes of types for which this script made room without serving all that waits.
local function publish_room()
  if limits.running and slots.less_run() then
    for _, node_type in ipairs(call('ZRANGE', base .. 'ready_types', 0, HEADS - 1)) do freed_types[#freed_types + 1] = node_type end
  end
  for _, node_type in ipairs(freed_types) do
    if room_of_type(node_type) > 0 and call('ZSCORE', base .. 'ready_types', node_type) then
      call('PUBLISH', base .. 'wake', node_type)
    end
  end
end

-- Serves the types that have takers, beginning with the one that was served longest ago.
local function claim()
  local LEAST_CLAIMS = 100
  claims = math.max(budget, LEAST_CLAIMS)
  reopen()
  local takers = takers_of(current_vacancies())
  local served = served_at(takers)
  local fresh = fresh_queues(takers, served)
  local types = {}
  for node_type in pairs(served) do types[#types + 1] = node_type end
  for node_type in pairs(fresh) do
    types[#types + 1] = node_type
    served[node_type] = time
  end
  if #types > 1 then
    table.sort(types, function(a, b) return served[a] < served[b] or (served[a] == served[b] and a < b) end)
  end
  for _, node_type in ipairs(types) do
    local vacancies, new = takers[node_type], fresh[node_type]
    if not new or hand_out(node_type, new, vacancies) then serve(node_type, vacancies) end
  end
  leave_waiting()
  publish_room()
end

-- Ends every script that changes node tasks: settles, claims and writes; returns the Effects.
local function conclude()
  settle()
  local due_in, more_due = wake_delayed()
  -- A wait whose time has come may have ended a node task.
  if #work > 0 or #finished > 0 then settle() end
  claim()
  local more = next(owed) or #work > 0 or #finished > 0
  if more then
    -- Node tasks that claiming skipped or set aside have consequences; the next script gives out what becomes ready.
    settle()
    for group, count in pairs(owed) do spared[group] = (spared[group] or 0) + count end
    reopen()
    write_queues(queues)
    leave_waiting()
  end
  local first = write_delayed()
  if next(spenders) then retry_budget.write() end
  write_all()
  scheduler.write_last()
  if next(buried) then dead_letters.write() end
  write_changed()
  write_rates()
  effects.due_in = math.min(due_in or first or -1, first or due_in or -1)
  if next_token and (effects.due_in < 0 or next_token < effects.due_in) then effects.due_in = next_token end
  effects.todo = (drained and 0 or call('LLEN', base .. 'todo')) + ((more_due or more) and 1 or 0)
  return effects
end
