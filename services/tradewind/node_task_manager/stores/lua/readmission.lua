--!include queues
-- Lets in node tasks that limits held back.
local readmission = {}
do
  local call = index_call
  local freed_types = {}
  fresh(function() if #freed_types > 0 then freed_types = {} end end)

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

  -- Returns the limit and the group that an entry of `blocked_of` names; nil for what somebody has put there.
  function readmission.group_of(member) return string.match(member, '^[^|]*|([^|]*)|([^:|]+:[^:|]+:[%d.]+)$') end

  -- Returns the user and the type that an entry of `parked` names; nil for what somebody has put there.
  function readmission.parked(member) return string.match(member, '^([^:]+):([^:]+)$') end

  function readmission.unpark(member)
    call('ZREM', base .. 'parked', member)
    local user, node_type = readmission.parked(member)
    if user then queue_of(node_type, user).rejoins = true end
  end

  -- Lets in node tasks that a limit held back, after `count` slots of it were freed.
  local function use_freed(limit, count)
    local PACED_AT_ONCE = 100
    local kind, rest = string.match(limit, '^(%a+):(.+)$')
    if kind == 'user' then
      if slots.room_of_user(rest) > 0 then
        for _, member in ipairs(call('ZRANGE', base .. 'parked', '[' .. rest .. ':', '(' .. rest .. ';', 'BYLEX')) do
          readmission.unpark(member)
        end
      end
    elseif kind == 'type' then
      freed_types[#freed_types + 1] = rest
    else
      for _, group in ipairs(call('SMEMBERS', base .. 'blocked_by:' .. limit)) do
        if readmission.group_of('|' .. limit .. '|' .. group) then some_of(limit, group, count, PACED_AT_ONCE) end
      end
    end
  end

  -- Puts back `count` node tasks of a group, for places that others of the group did not take.
  local function use_spared(name, count)
    local limit, group = string.match(name, '^([^|]*)|(.+)$')
    some_of(limit, group, count, count)
  end

  -- Lets in those that limits now have room for.
  function readmission.use_room()
    if next(freed) then
      local now_free = freed
      freed = {}
      for limit, count in pairs(now_free) do use_freed(limit, count) end
    end
    if next(spared) then
      local groups = spared
      spared = {}
      for name, count in pairs(groups) do use_spared(name, count) end
    end
  end

  -- Notifies other processes of types for which this script made room without serving all that waits.
  function readmission.publish_room()
    local TYPES = 32
    if limits.running and slots.less_run() then
      for _, node_type in ipairs(call('ZRANGE', base .. 'ready_types', 0, TYPES - 1)) do
        freed_types[#freed_types + 1] = node_type
      end
    end
    for _, node_type in ipairs(freed_types) do
      if slots.room_of_type(node_type) > 0 and call('ZSCORE', base .. 'ready_types', node_type) then
        call('PUBLISH', base .. 'wake', node_type)
      end
    end
  end
end
