--!include assignments
--!include lost_plans
--!include readmission
--!include turns
--!include vacancies
-- Gives ready node tasks to vacancies: users take turns, each user's go by priority and age.
local claim, queue_all
do
  local call = index_call
  local HEADS = 32
  -- How many more node tasks this script may claim, how many of each type their own limits held back, and when (in ms)
  -- a type has a token again.
  local claims, held_back, next_token

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

  -- Gives a node task to a vacancy, unless one of its own limits is full; returns whether it did.
  local function assign_within_limits(record, comp, open, rank)
    local entry = record.entry or node(comp.plan, record.index)
    if entry.lost then return false end
    local own = slots.own_limits(entry, comp)
    if own then
      for i = 1, #own do
        if slots.is_full(own[i]) then
          held_back[entry.type] = (held_back[entry.type] or 0) + 1
          when_full.hold_back(record, entry, comp, own[i], own, rank)
          return false
        end
      end
    end
    assignments.begin(record, entry, comp, own, vacancies.roomiest(open))
    return true
  end

  local function serve(node_type, open)
    local wanted, begun = math.min(vacancies.room(open), slots.room_of_type(node_type)), nil
    while wanted > 0 and claims > 0 and not assignments.are_large() and (held_back[node_type] or 0) < HEADS do
      local taken, user, at, left = turns.take(node_type, math.min(wanted, HEADS))
      if not taken then break end
      local given = 0
      for i = 1, #taken, 2 do
        claims = claims - 1
        local record = task(taken[i], 'input')
        local comp = record and record.status == 'pending' and component_of(record)
        -- A component that is being stopped leaves its node tasks to the stop.
        if comp and not comp.stop and assign_within_limits(record, comp, open, taken[i + 1]) then given = given + 1 end
      end
      wanted = wanted - given
      local cost = given > 0 and turns.cost(user) or 0
      if left == 'left' then
        turns.remember_leaver(node_type, user, at + given * cost)
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
      if slots.room_of_type(node_type) > 0 then
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
    turns.write_queues(rest)
    for node_type, did in pairs(shrunk) do
      -- A type whose queues were empty for a moment is served like a new one.
      if did and takers[node_type] then
        served[node_type] = tonumber(call('ZSCORE', base .. 'ready_types', node_type) or nil)
      end
    end
    return fresh
  end

  local function earlier(a, b)
    local first, second = tonumber(records[a].rank), tonumber(records[b].rank)
    return first < second or (first == second and a < b)
  end

  -- Gives node tasks that became ready in this script straight to vacancies, if all of their type find room: users in
  -- turn, each user's in the order that a queue would have. Queues the others; returns whether there are any.
  local function hand_out(node_type, fresh, open)
    local count, longest, bound = 0, 0, limits.bounded or limits.weighted
    for _, queue in ipairs(fresh) do
      count, longest = count + #queue.added / 2, math.max(longest, #queue.added)
      bound = bound or queue.bound
    end
    -- If limits hold some back, or users have weights, only the queues can tell whose turn it is.
    if count > math.min(vacancies.room(open), claims, slots.room_of_type(node_type)) or bound and #fresh > 1 then
      turns.write_queues(fresh)
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
      for i = 1, #fresh do
        local queue, record = fresh[i], lists[i][at] and records[lists[i][at]]
        if record and record.status == 'pending' then
          if record.comp.stop or assignments.are_large() or limits.bounded and slots.room_of_user(queue.user) <= 0 then
            table.insert(queue.added, record.rank)
            table.insert(queue.added, record.id)
            left = true
          else
            claims = claims - 1
            assign_within_limits(record, record.comp, open, record.rank)
          end
        end
      end
    end
    if left then turns.write_queues(fresh) end
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

  -- Queues what limits now have room for, and what became ready in this script, without giving it to anyone.
  function queue_all()
    readmission.use_room()
    turns.write_queues(queues)
    leave_waiting()
  end

  -- Serves the types that have takers, beginning with the one that was served longest ago. Returns in how many ms the
  -- first type whose rate is used up has a token again, nil when there is none.
  function claim()
    local LEAST_CLAIMS = 100
    claims, held_back, next_token = math.max(budget, LEAST_CLAIMS), {}, nil
    readmission.use_room()
    local takers = vacancies.by_type()
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
      local open, new = takers[node_type], fresh[node_type]
      if not new or hand_out(node_type, new, open) then serve(node_type, open) end
    end
    leave_waiting()
    readmission.publish_room()
    return next_token
  end
end

-- Ends every script that changes node tasks: settles, claims and writes; returns the Effects.
local function conclude()
  settle()
  local due_in, more_due = wake_delayed()
  -- A wait whose time has come may have ended a node task.
  if #work > 0 or #finished > 0 or next(stored_plans.lost) then settle() end
  local next_token = claim()
  local more = next(owed) or #work > 0 or #finished > 0 or next(stored_plans.lost)
  if more then
    -- Node tasks that claiming skipped or set aside have consequences; the next script gives out what becomes ready.
    settle()
    for group, count in pairs(owed) do spared[group] = (spared[group] or 0) + count end
    queue_all()
  end
  local first = write_delayed()
  retry_budget.write()
  write_all()
  scheduler.write_last()
  dead_letters.write()
  write_changed()
  slots.write_rates()
  effects.due_in = math.min(due_in or first or -1, first or due_in or -1)
  if next_token and (effects.due_in < 0 or next_token < effects.due_in) then effects.due_in = next_token end
  effects.todo = (drained and 0 or index_call('LLEN', base .. 'todo')) + ((more_due or more) and 1 or 0)
  return effects
end
