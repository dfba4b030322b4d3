--!include doctor
-- Compares queues and limits with the node tasks in them.
do
  local call, score_of = naming_call, doctor.score_of

  -- Examines the first node tasks of a queue; the others come to its head in time.
  local HEADS = 50
  function doctor.queue(node_type, user)
    local name = 'ready:' .. node_type .. ':' .. user
    local ids = doctor.members(name, 0, HEADS - 1)
    if #ids == 0 then
      found('turn-without-queue', node_type .. ':' .. user, 'the user has a turn, but nothing is queued', function()
        call('ZREM', base .. 'ring:' .. node_type, user)
        if call('EXISTS', base .. 'ring:' .. node_type) == 0 then
          call('ZREM', base .. 'ready_types', node_type)
          call('DEL', base .. 'left:' .. node_type)
        end
      end)
    end
    for _, id in ipairs(ids) do
      local record = task(id)
      local comp = record and component_of(record)
      if not comp or record.status ~= 'pending' or doctor.is_delayed(record) or read_rest(record).blocked
        and record.blocked ~= ''
        or comp.user_id ~= user or doctor.has_plan(comp) and node(comp.plan, record.index).type ~= node_type then
        found('queued-not-ready', name .. ' ' .. id, 'no node task of this name is ready there', function()
          local removed = queue_of(node_type, user).removed
          removed[#removed + 1] = id
        end)
      end
    end
    doctor.records = doctor.records + #ids + 1
  end

  function doctor.type_without_turns(node_type)
    found('turn-without-queue', node_type, 'it is among those to be served, but no user has a turn',
      function() call('ZREM', base .. 'ready_types', node_type) end)
  end

  function doctor.parked(member)
    local user = readmission.parked(member)
    if not user then
      found('index-without-record', 'parked ' .. member, 'it names no user and type', doctor.removal('parked', member))
    elseif slots.held('user:' .. user) == 0 then
      found('held-back-with-room', 'parked ' .. member, 'the user is held back, but none of their node tasks run',
        function() readmission.unpark(member) end)
    end
  end

  -- Examines a holder of a limit's slot: it runs under this limit.
  function doctor.holder(limit, id)
    local record = task(id)
    if doctor.is_leased(record) and string.find(' ' .. (record.slots or '') .. ' ', ' ' .. limit .. ' ', 1, true) then
      return
    end
    found('slot-without-holder', limit .. ' ' .. id, 'it does not run under this limit but holds a slot of it',
      function() slots.release(limit, id) end)
  end

  -- Examines the oldest holders of a limit's slots: slots that leaked are among them.
  function doctor.limit(limit)
    if string.sub(limit, 1, 5) == 'pace:' or not doctor.is_new(limit) then return end
    local ids = doctor.members('slots:' .. limit, 0, doctor.HOLDERS - 1)
    doctor.records = doctor.records + #ids + 1
    for _, id in ipairs(ids) do doctor.holder(limit, id) end
  end

  -- Examines a group that a limit holds back, named with its user in front: `<user>|<limit>|<type>:<user>:<most>`.
  function doctor.group(member)
    local limit, group = readmission.group_of(member)
    if not limit then
      found('index-without-record', 'blocked_of ' .. member, 'it names no limit and group',
        doctor.removal('blocked_of', member))
      return
    end
    local name, node_type, user, most = limit .. '|' .. group, string.match(group, '^([^:]+):([^:]+):(.+)$')
    doctor.limit(limit)
    for _, id in ipairs(doctor.members('blocked:' .. name, 0, HEADS - 1)) do
      local record = task(id)
      doctor.records = doctor.records + 1
      if not record or record.status ~= 'pending' or read_rest(record).blocked ~= name then
        found('queued-not-ready', 'blocked:' .. name .. ' ' .. id, 'no node task of this name waits for the limit',
          function() call('ZREM', base .. 'blocked:' .. name, id) end)
      end
    end
    if call('EXISTS', base .. 'blocked:' .. name) == 0 then return end
    if string.sub(limit, 1, 5) == 'pace:' then
      if not score_of('delayed', '|' .. limit) then
        found('held-back-with-room', name, 'nothing would check again whether the rate has tokens',
          function() slots.recheck(limit, 0) end)
      end
      return
    end
    local free = tonumber(most) - slots.held(limit)
    -- Node tasks that were let in already may be anywhere in the queue.
    if free > call('ZCARD', base .. 'ready:' .. node_type .. ':' .. user) then
      found('held-back-with-room', name, free .. ' slots of the limit are free, but node tasks wait for one',
        function() freed[limit] = math.max(freed[limit] or 0, free) end)
    end
  end
end
