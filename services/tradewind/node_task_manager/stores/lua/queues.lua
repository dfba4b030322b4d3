--!include slots
--!include clocks
-- Queues of ready node tasks, by type and user.
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
  if entry.lost then
    -- It is left for the end of its component.
    if record.status == 'running' then
      changed(comp, -1, record, 'queued')
      set_state(record, 'status', 'pending')
    end
    return
  end
  local place = entry.map and fan_out.place_of(record.id)
  if entry.map and not place then return fan_out.offer(record, comp) end
  if comp.partition == NO_PARTITION and comp.nodes > 1 then place = record.index end
  if entry.wait or record.status == 'suspended' then return suspension.ready(record, comp, entry) end
  changed(comp, record.status == 'running' and -1 or 0, record, 'queued')
  record.status = 'pending'
  record.ready_at, record.noted = stamp, true
  record.comp = comp
  local begin = clocks.due_at(comp) or time
  record.start_by = entry.start > 0 and begin + entry.start
  if entry.total then
    if not read_rest(record).total_at then set(record, 'total_at', begin + entry.total) end
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

-- Takes out a node task that waits for a time.
local function undelay(record)
  remove('delayed', record.id)
  set(record, 'retry_at', 0)
end

-- Takes out a node task that waits in a queue, for its next attempt, or suspended.
local function dequeue(record, comp)
  local entry = node(comp.plan, record.index)
  if entry.map and not fan_out.is_item(record.id) then return fan_out.withdraw(record) end
  if record.status == 'pending' and not slots.withdraw(record, entry, comp, slots.own_limits(entry, comp)) then
    local queue = queue_of(entry.type, comp.user_id)
    if not withdraw(queue.added, record.id) then queue.removed[#queue.removed + 1] = record.id end
  end
  remove('start_deadlines', record.id)
  undelay(record)
end
