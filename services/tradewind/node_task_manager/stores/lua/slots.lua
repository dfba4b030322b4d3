--!include ad_hoc
-- Slots bound how many node tasks run at once. A limit is `user:<user>`, `type:<type>`, `flow:<flow>`, `adhoc:<user>`
-- or `key:<user>:<key>`; how many node tasks hold a slot of it is the size of its set `slots:<limit>`, never a counter.
-- `limits.running` bounds all leases. A user at the limit is parked: taken out of the rings. Node tasks that another
-- limit holds back are in `blocked:<limit>|<type>:<user>:<most>`; when a slot comes free, one of each such group is
-- queued again. If it takes no slot after all, it makes room for another one of its group: that room is `spared`, or
-- `owed` to the next script.
local HUGE = math.huge
local freed, spared, owed = {}, {}, {}
-- `paced` says when to check node tasks that wait for the rate of a key again: one entry in `delayed` for each rate.
local slots = {paced = {}}
do
  local call = index_call
  -- How many hold slots of each limit, and how many more node tasks run than before this script, of `leased` then.
  local held, leases, leased = {}, 0, nil
  -- The time (in us) at which the bucket of a rate is full again, which is all its state; every node task that begins
  -- moves it on. A bucket is named by a node type, or `<user>:<key>`.
  local full_at, spent = {}, {}
  fresh(function()
    leases, leased = 0, nil
    if next(freed) then freed = {} end
    if next(spared) then spared = {} end
    if next(owed) then owed = {} end
    if next(held) then held = {} end
    if next(full_at) then full_at, spent = {}, {} end
    if next(slots.paced) then slots.paced = {} end
  end)

  -- Returns how many hold a slot at this point of the script; the sets are written at its end.
  function slots.held(limit)
    local count = held[limit]
    if not count then
      count = call('ZCARD', base .. 'slots:' .. limit)
      held[limit] = count
    end
    return count
  end

  -- Returns how many node tasks run, of `limits.running`.
  function slots.running()
    if not leased then leased = call('ZCARD', base .. 'inflight') end
    return leased + leases
  end

  -- Whether `limits.running` was reached before this script, and fewer run now.
  function slots.less_run() return leases < 0 and slots.running() - leases >= limits.running end

  local function full_at_of(name)
    if not full_at[name] then
      full_at[name] = math.max(time * 1000, tonumber(call('GET', base .. 'bucket:' .. name) or 0))
    end
    return full_at[name]
  end

  -- Returns how many tokens a type has.
  function slots.tokens(node_type, rate)
    return math.floor((time * 1000 + rate[2] - full_at_of(node_type)) / rate[1])
  end

  -- Returns in how many ms a type has a token again, 0 when it has one.
  function slots.token_in(node_type, rate)
    return math.max(0, math.ceil((full_at_of(node_type) + rate[1] - rate[2]) / 1000 - time))
  end

  -- Reads the rate of a key from the limit `pace:<user>:<key>` and the group `<us per token>.<us to fill the
  -- bucket>.<cost>`.
  -- Returns the name of its bucket, how long its cost takes (us), and how much of that the bucket lacks now (us).
  function slots.pace(limit, group)
    local interval, period, cost = string.match(group, '(%d+)%.(%d+)%.(%d+)$')
    local name, length = string.sub(limit, 6), interval * cost
    return name, length, full_at_of(name) + length - (time * 1000 + period)
  end

  -- Whether one of a node task's own limits holds it back.
  function slots.is_full(limit)
    if not limit[3] then return slots.held(limit[1]) >= limit[2] end
    local _, _, short = slots.pace(limit[1], limit[2])
    return short > 0
  end

  function slots.recheck(limit, us)
    local at = time + math.max(1, math.ceil(us / 1000))
    slots.paced[limit] = math.min(slots.paced[limit] or at, at)
  end

  local function take_slot(record, limit)
    held[limit] = slots.held(limit) + 1
    put('slots:' .. limit, record.id, stamp)
    return limit
  end

  local function take_each(record, entry, comp, own)
    local names, rate = nil, limits.type_rates and limits.type_rates[entry.type]
    if rate then
      full_at[entry.type] = full_at_of(entry.type) + rate[1]
      spent[entry.type] = true
    end
    if limits.user_running then names = take_slot(record, 'user:' .. comp.user_id) end
    if limits.type_running and limits.type_running[entry.type] then
      names = (names and names .. ' ' or '') .. take_slot(record, 'type:' .. entry.type)
    end
    for i = 1, own and #own or 0 do
      if own[i][3] then
        local name, length = slots.pace(own[i][1], own[i][2])
        full_at[name], spent[name] = full_at[name] + length, true
      else
        names = (names and names .. ' ' or '') .. take_slot(record, own[i][1])
      end
    end
    if names then set_state(record, 'slots', names) end
  end

  -- Takes a slot of every limit that a node task runs under, including its `own`, and notes which, so that freeing them
  -- needs no config.
  function slots.take(record, entry, comp, own)
    leases = leases + 1
    if own or limits.bounded then take_each(record, entry, comp, own) end
  end

  -- Gives back the tokens that a node task took, as it did not begin after all.
  function slots.return_tokens(entry, comp)
    local function give(limit, name, length)
      full_at[name], spent[name] = math.max(time * 1000, full_at_of(name) - length), true
      freed[limit] = (freed[limit] or 0) + 1
    end
    local rate = limits.type_rates and limits.type_rates[entry.type]
    if rate then give('type:' .. entry.type, entry.type, rate[1]) end
    if entry.pace then
      local limit = 'pace:' .. comp.user_id .. ':' .. entry.pace
      give(limit, slots.pace(limit, entry.pace_group))
    end
  end

  function slots.release(limit, id)
    held[limit] = slots.held(limit) - 1
    freed[limit] = (freed[limit] or 0) + 1
    remove('slots:' .. limit, id)
  end

  function slots.free(record)
    leases = leases - 1
    if not record.slots or record.slots == '' then return end
    for limit in string.gmatch(record.slots, '%S+') do slots.release(limit, record.id) end
    -- While a node task does not run, the slots noted in its record mean nothing.
    record.slots = ''
  end

  function slots.forget_group(limit, group)
    call('SREM', base .. 'blocked_by:' .. limit, group)
    call('ZREM', base .. 'blocked_of', string.match(group, ':([^:]+):') .. '|' .. limit .. '|' .. group)
  end

  -- Returns the group in which a node task waits for a limit of its own.
  function slots.group_of(limit, entry, comp) return entry.type .. ':' .. comp.user_id .. ':' .. limit[2] end

  local function spare(groups, limit, entry, comp)
    local name = limit[1] .. '|' .. slots.group_of(limit, entry, comp)
    groups[name] = (groups[name] or 0) + 1
  end

  -- Puts a ready node task aside until `limit`, one of its `own`, has room; `rank` is its place in the queue.
  function slots.block(record, entry, comp, limit, own, rank)
    local name, group = limit[1], slots.group_of(limit, entry, comp)
    set(record, 'blocked', name .. '|' .. group)
    call('ZADD', base .. 'blocked:' .. record.blocked, rank, record.id)
    call('SADD', base .. 'blocked_by:' .. name, group)
    call('ZADD', base .. 'blocked_of', 0, comp.user_id .. '|' .. record.blocked)
    if limit[3] then
      local _, _, short = slots.pace(name, group)
      slots.recheck(name, short)
    end
    if record.start_by then call('ZADD', base .. 'start_deadlines', record.start_by, record.id) end
    -- It leaves room for another one under the rest of its limits.
    for _, other in ipairs(own) do
      if other[1] ~= name then spare(owed, other, entry, comp) end
    end
  end

  -- Takes out a ready node task that is not to run. If it was about to be let in, it makes room for another one.
  -- Returns true when it was blocked.
  function slots.withdraw(record, entry, comp, own)
    if read_rest(record).blocked and record.blocked ~= '' then
      call('ZREM', base .. 'blocked:' .. record.blocked, record.id)
      if call('EXISTS', base .. 'blocked:' .. record.blocked) == 0 then
        slots.forget_group(string.match(record.blocked, '^([^|]*)|(.+)$'))
      end
      set(record, 'blocked', '')
      return true
    end
    for _, limit in ipairs(own or {}) do spare(spared, limit, entry, comp) end
    return false
  end

  function slots.write_rates()
    local SPARE_MS = 60000
    for node_type in pairs(spent) do
      call('SET', base .. 'bucket:' .. node_type, string.format('%.0f', full_at[node_type]), 'PX',
        string.format('%.0f', math.ceil(full_at[node_type] / 1000 - time) + SPARE_MS))
    end
  end

  -- Returns how many more node tasks of a type may run under the limits on all node tasks and on the type.
  function slots.room_of_type(node_type)
    if not limits.bounded then return HUGE end
    local room = limits.running and limits.running - slots.running() or HUGE
    local most, rate = limits.type_running and limits.type_running[node_type],
      limits.type_rates and limits.type_rates[node_type]
    if rate then room = math.min(room, slots.tokens(node_type, rate)) end
    return most and math.min(room, most - slots.held('type:' .. node_type)) or room
  end

  function slots.room_of_user(user)
    return limits.user_running and limits.user_running - slots.held('user:' .. user) or HUGE
  end

  -- Returns a node task's own limits, with how many each lets run; nil or false when there are none.
  function slots.own_limits(entry, comp)
    if not (entry.flow_max or entry.key or entry.pace or limits.flow_running or limits.adhoc) then return nil end
    -- All nodes of a component that have no key are under the same limits.
    if comp.own_limits ~= nil and not entry.key and not entry.pace then return comp.own_limits end
    local found, flow = {}, string.match(comp.run, '^([^:]+):[^:]+:[^:]+$')
    if flow then
      local most = math.min(entry.flow_max or HUGE, limits.flow_running or HUGE)
      if most < HUGE then found[1] = {'flow:' .. flow, most} end
    elseif limits.adhoc then
      found[1] = {'adhoc:' .. comp.user_id, limits.adhoc}
    end
    if not entry.key and not entry.pace then
      comp.own_limits = #found > 0 and found
      return comp.own_limits
    end
    if entry.key then found[#found + 1] = {'key:' .. comp.user_id .. ':' .. entry.key, entry.key_max} end
    if entry.pace then found[#found + 1] = {'pace:' .. comp.user_id .. ':' .. entry.pace, entry.pace_group, true} end
    return found
  end

  -- Returns the limits of which a node task holds a slot while it runs, as `take` takes them.
  function slots.of(entry, comp)
    local names = {}
    if limits.user_running then names[1] = 'user:' .. comp.user_id end
    if limits.type_running and limits.type_running[entry.type] then names[#names + 1] = 'type:' .. entry.type end
    for _, limit in ipairs(slots.own_limits(entry, comp) or {}) do
      if not limit[3] then names[#names + 1] = limit[1] end
    end
    return names
  end
end
