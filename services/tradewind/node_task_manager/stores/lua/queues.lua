--!include slots
-- Queues of ready node tasks, by type and user; letting in node tasks that limits held back; users' turns.
local queues = {}
fresh(function() if next(queues) then queues = {} end end)
-- Functions for nodes that run once for each item of a list; see fan_out.
local fan_out = {}
-- Functions for nodes that wait without a worker; see suspension.
local suspension = {}

local function queue_of(node_type, user)
  local name = node_type .. ':' .. user
  local queue = queues[name]
  if not queue then
    queue = {key = base .. 'ready:' .. name, type = node_type, user = user, added = {}, removed = {}}
    queues[name] = queue
  end
  return queue
end

local function enqueue(record, comp)
  local entry = record.entry or node(comp.plan, record.index)
  local place = entry.map and fan_out.place_of(record.id)
  if entry.map and not place then return fan_out.offer(record, comp) end
  if comp.partition == NO_PARTITION and comp.nodes > 1 then place = record.index end
  if entry.wait or record.status == 'suspended' then return suspension.ready(record, comp, entry) end
  changed(comp, record.status == 'running' and -1 or 0, record, 'queued')
  record.status = 'pending'
  record.ready_at, record.noted = stamp, true
  record.comp = comp
  record.start_by = entry.start > 0 and time + entry.start
  if entry.total then
    if not read_rest(record).total_at then set(record, 'total_at', time + entry.total) end
    record.start_by = math.min(record.start_by or math.huge, tonumber(record.total_at))
  end
  -- A node task with a higher priority is queued as if it had waited longer, and an item of a list or a batch a moment
  -- behind the one before.
  local ITEMS_A_MS = 4096
  local shifted = entry.ahead or place
  record.rank = shifted and string.format('%.17g', time - (entry.ahead or 0) + (place or 0) / ITEMS_A_MS) or stamp
  local queue = queue_of(entry.type, comp.user_id)
  local items = queue.added
  local n = #items
  items[n + 1] = record.rank
  items[n + 2] = record.id
  queue.ranked = queue.ranked or shifted ~= nil
  queue.bound = queue.bound or entry.flow_max or entry.key or entry.pace
end

-- Lets in node tasks that limits held back.
local freed_types = {}
fresh(function() if #freed_types > 0 then freed_types = {} end end)
local readmission = {}
do
  -- Puts up to `count` node tasks of a group that a limit held back into their queue again; returns how many.
  function readmission.group(limit, group, count)
    local node_type, user = string.match(group, '^([^:]+):([^:]+):')
    local key = base .. 'blocked:' .. limit .. '|' .. group
    local back = call('ZPOPMIN', key, count)
    for i = 1, #back, 2 do
      local record, queue = task(back[i]), queue_of(node_type, user)
      if record then
        set(record, 'blocked', '')
        record.rank, record.comp = back[i + 1], component_of(record)
        table.insert(queue.added, back[i + 1])
        table.insert(queue.added, back[i])
        queue.ranked, queue.bound = true, true
      end
    end
    if call('EXISTS', key) == 0 then slots.forget_group(limit, group) end
    return #back / 2
  end

  -- Puts back up to `most` node tasks of a group that the rate of a key held back, as far as there are tokens.
  local function paced_group(limit, group, most)
    local _, length, short = slots.pace(limit, group)
    local count = short > 0 and 0 or math.min(most, math.floor(-short / length) + 1)
    if count > 0 then readmission.group(limit, group, count) end
    if call('SISMEMBER', base .. 'blocked_by:' .. limit, group) == 1 then
      slots.recheck(limit, count > 0 and count * length or short)
    end
  end

  -- Puts back up to `count` node tasks of a group if its limit has room now, or up to `paced` if a rate held it back.
  local function some_of(limit, group, count, paced)
    if string.sub(limit, 1, 5) == 'pace:' then
      paced_group(limit, group, paced)
    elseif tonumber(string.match(group, '%d+$')) > slots.held(limit) then
      readmission.group(limit, group, count)
    end
  end

  function readmission.unpark(user, node_type)
    call('ZREM', base .. 'parked', user .. ':' .. node_type)
    queue_of(node_type, user).rejoins = true
  end

  -- Lets in node tasks that a limit held back, after `count` slots of it were freed.
  function readmission.open(limit, count)
    local PACED_AT_ONCE = 100
    local kind, rest = string.match(limit, '^(%a+):(.+)$')
    if kind == 'user' then
      if room_of_user(rest) > 0 then
        for _, member in ipairs(call('ZRANGE', base .. 'parked', '[' .. rest .. ':', '(' .. rest .. ';', 'BYLEX')) do
          readmission.unpark(string.match(member, '^(.+):(.+)$'))
        end
      end
    elseif kind == 'type' then
      freed_types[#freed_types + 1] = rest
    else
      for _, group in ipairs(call('SMEMBERS', base .. 'blocked_by:' .. limit)) do some_of(limit, group, count, PACED_AT_ONCE) end
    end
  end

  -- Puts back `count` node tasks of a group, for places that others of the group did not take.
  function readmission.spared(name, count)
    local limit, group = string.match(name, '^([^|]*)|(.+)$')
    some_of(limit, group, count, count)
  end
end

-- Lets in node tasks that limits held back and now have room for.
local function reopen()
  if next(freed) then
    local now_free = freed
    freed = {}
    for limit, count in pairs(now_free) do readmission.open(limit, count) end
  end
  if next(spared) then
    local groups = spared
    spared = {}
    for name, count in pairs(groups) do readmission.spared(name, count) end
  end
end

-- Takes out a node task that waits for a time.
local function undelay(record)
  remove('delayed', record.id)
  set(record, 'retry_at', 0)
end

-- Takes out a node task that waits in a queue, for its next attempt, or suspended.
local function dequeue(record, comp)
  local entry = node(comp.plan, record.index)
  if entry.map and not fan_out.is_item(record.id) then return fan_out.withdraw(record) end
  if record.status == 'pending' and not slots.withdraw(record, entry, comp, own_limits(entry, comp)) then
    local items = queue_of(entry.type, comp.user_id).removed
    items[#items + 1] = record.id
  end
  remove('start_deadlines', record.id)
  undelay(record)
end

-- Remembers where in virtual time a user stood who left the ring of a type, until the last turn began later than that.
local function remember_leaver(node_type, user, at) call('ZADD', base .. 'left:' .. node_type, at, user) end

-- Writes the queues. Users whose queue was emptied leave the ring of its type. Then users who have node tasks now join
-- the ring, either where the last turn began, or where they stood when they left it, if that is later. So a newcomer is
-- next, and nobody gains or loses turns by having had no node tasks, not even a user who has a single one again and
-- again.
local function write_queues(changed)
  if not next(changed) then return end
  local emptied, heads = {}, {}
  for _, queue in pairs(changed) do
    in_pieces('ZADD', queue.key, queue.added)
    in_pieces('ZREM', queue.key, queue.removed)
    queue.empty = #queue.removed > 0 and call('EXISTS', queue.key) == 0
    if queue.empty then
      local at = call('ZSCORE', base .. 'ring:' .. queue.type, queue.user)
      if at then
        call('ZREM', base .. 'ring:' .. queue.type, queue.user)
        remember_leaver(queue.type, queue.user, at)
        emptied[queue.type] = true
      end
    end
  end
  for node_type in pairs(emptied) do
    if call('EXISTS', base .. 'ring:' .. node_type) == 0 then
      call('ZREM', base .. 'ready_types', node_type)
      call('DEL', base .. 'left:' .. node_type)
    end
  end
  for _, queue in pairs(changed) do
    if #queue.added > 0 and not queue.empty or queue.rejoins and call('EXISTS', queue.key) == 1 then
      local ring, left = base .. 'ring:' .. queue.type, base .. 'left:' .. queue.type
      local begun = heads[queue.type]
      if begun == nil then
        begun = call('EXISTS', ring) == 1 and tonumber(call('ZSCORE', left, '') or 0)
        heads[queue.type] = begun
        if not begun then call('ZADD', base .. 'ready_types', 'NX', time, queue.type) end
      end
      local last_place = begun and call('ZSCORE', left, queue.user)
      call('ZADD', ring, 'NX', math.max(begun or 0, tonumber(last_place or 0)), queue.user)
      if last_place then call('ZREM', left, queue.user) end
    end
  end
end
