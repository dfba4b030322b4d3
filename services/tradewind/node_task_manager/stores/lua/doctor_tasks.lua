--!include doctor
-- Compares node tasks with the indexes that name them.
do
  local call, score_of, removal = naming_call, doctor.score_of, doctor.removal

  -- A node task that has not ended is in the list of all.
  function doctor.listing(id)
    if not score_of('node_tasks_list', id) then
      found('record-not-listed', id, 'it is not in the list of all node tasks',
        function() put('node_tasks_list', id, stamp) end)
    end
  end

  local function examine_lease(id, record)
    local worker = 'worker_tasks:' .. record.worker_id
    doctor.index(worker, 'zset')
    if not score_of('inflight', id) or not score_of(worker, id) then
      found('task-without-lease', id,
        'it runs on ' .. record.worker_id .. ', but no lease of it is on record', function()
        put('inflight', id, time + limits.lease_ms)
        put(worker, id, time + limits.lease_ms)
      end)
    end
    for limit in string.gmatch(record.slots or '', '%S+') do
      if not score_of('slots:' .. limit, id) then
        found('holder-without-slot', id, 'it runs but does not count for the limit ' .. limit,
          function() put('slots:' .. limit, id, stamp) end)
      end
    end
  end

  -- A ready node task is in its queue, or among those that a limit holds back; its user has turns, or is parked.
  local function examine_place(id, record, comp, entry)
    local user = comp.user_id
    doctor.index('left:' .. entry.type, 'zset')
    local function requeue()
      if read_rest(record).blocked then set(record, 'blocked', '') end
      enqueue(record, comp)
    end
    if read_rest(record).blocked and record.blocked ~= '' then
      local limit, group = string.match(record.blocked, '^([^|]*)|(.+)$')
      if not score_of('blocked:' .. record.blocked, id) then
        found('ready-not-queued', id, 'it is ready but does not wait for the limit ' .. limit
          .. ', as its record says', requeue)
      elseif not score_of('blocked_of', user .. '|' .. record.blocked)
        or doctor.read('set', 'SISMEMBER', 'blocked_by:' .. limit, group) ~= 1 then
        found('waiters-not-indexed', record.blocked,
          'node tasks wait for this limit, but no index leads to them', function()
          call('SADD', base .. 'blocked_by:' .. limit, group)
          call('ZADD', base .. 'blocked_of', 0, user .. '|' .. record.blocked)
        end)
      end
    elseif not score_of('ready:' .. entry.type .. ':' .. user, id) then
      found('ready-not-queued', id, 'it is ready but in no queue', requeue)
    elseif score_of('ring:' .. entry.type, user) then
      if not score_of('ready_types', entry.type) then
        found('queue-without-turn', entry.type,
          'users have turns of this node type, but it is not among those to be served',
          function() call('ZADD', base .. 'ready_types', 'NX', time, entry.type) end)
      end
    elseif not score_of('parked', user .. ':' .. entry.type) then
      found('queue-without-turn', entry.type .. ':' .. user, 'node tasks are queued, but their user has no turn',
        function() queue_of(entry.type, user).rejoins = true end)
    end
    local start_by = entry.start > 0 and time + entry.start or entry.total and tonumber(read_rest(record).total_at)
    if start_by and not score_of('start_deadlines', id) then
      found('ready-without-deadline', id, 'it is ready, but its wait for a worker would never end',
        function() put('start_deadlines', id, start_by) end)
    end
  end

  local function missing(id, listed_at)
    local run = run_of(id)
    local open = run and call('EXISTS', base .. 'run:' .. run) == 1 and doctor.ttl('run:' .. run) == -1
    -- The cleaner sweeps ended node tasks when everything that may refer to them is gone.
    local SWEPT_MS = 3600 * 1000
    if open or listed_at <= time - limits.retention_ms - SWEPT_MS then
      found('index-without-record', 'node_tasks_list ' .. id, 'no such node task is on record',
        removal('node_tasks_list', id))
    end
  end

  -- Compares a node task's record with the indexes: it is in those that its status requires, and in no others.
  function doctor.node_task(id, listed_at, jobs)
    local record = task(id)
    if not record then return missing(id, listed_at) end
    local comp = component_of(record)
    if not comp then
      local key = record.key
      if not call('HGET', key, record.component_id .. '/facts') and doctor.ttl('run:' .. record.run) == -1 then
        local alone = #component_ids(record.run) < 2
        found('task-without-component', id, 'its component is not on record, and '
          .. (alone and 'it would stay for ever'
            or 'its run would never end: remove the key ' .. key .. ', and the run begins again'),
          alone and function() call('PEXPIRE', key, limits.retention_ms) end or nil)
      end
      return
    end
    if not doctor.has_plan(comp) then
      if comp.status == 'running' then
        found('plan-missing', comp.plan, 'an open component needs it, but it is not on record: stop the run '
          .. comp.run)
      end
      return
    end
    local entry = node(comp.plan, record.index)
    if doctor.is_leased(record) then
      examine_lease(id, record)
    elseif score_of('inflight', id) then
      found('lease-without-task', id, 'it is ' .. record.status .. ', but a lease of it is on record',
        removal('inflight', id))
    end
    for _, limit in ipairs(slots.of(entry, comp)) do
      if score_of('slots:' .. limit, id) then doctor.holder(limit, id) end
    end
    local at = doctor.is_delayed(record) and not TERMINAL[record.status] and tonumber(record.retry_at)
    if at and tonumber(score_of('delayed', id)) ~= at then
      found('waiting-not-delayed', id, 'it is due for another attempt, but nothing would begin it', function()
        put('delayed', id, at)
      end)
    elseif not at and record.status == 'pending' then
      examine_place(id, record, comp, entry)
    end
    if entry.inputs == 0 and not fan_out.is_item(id) and record.index == piece_of(comp.plan, 'entries', 0)[1] then
      doctor.component(comp, jobs)
    end
  end

  -- Entries of indexes: each names a node task whose record agrees.
  function doctor.lease(id)
    if not doctor.is_leased(task(id)) then
      found('lease-without-task', id, 'a lease is on record, but no such node task runs', removal('inflight', id))
    else
      doctor.listing(id)
    end
  end

  function doctor.start_deadline(id)
    local record = task(id)
    if not record or record.status ~= 'pending' or doctor.is_delayed(record) then
      found('deadline-without-task', id, 'no node task of this name waits for a worker', removal('start_deadlines', id))
    end
  end

  function doctor.delay(id, at)
    if string.sub(id, 1, 1) == '|' then return end
    local record = task(id)
    local waits = record and not TERMINAL[record.status] and (record.status ~= 'running' or not record.worker_id)
    if not waits or tonumber(read_rest(record).retry_at) ~= tonumber(at) then
      found('delayed-without-task', id, 'no node task of this name is to be tried again then', removal('delayed', id))
    end
  end

  function doctor.worker(worker)
    for _, id in ipairs(doctor.members('worker_tasks:' .. worker, 0, doctor.HOLDERS - 1)) do
      local record = task(id)
      doctor.records = doctor.records + 1
      if not doctor.is_leased(record) or record.worker_id ~= worker then
        found('index-without-record', 'worker_tasks:' .. worker .. ' ' .. id, 'the worker does not run it',
          removal('worker_tasks:' .. worker, id))
      end
    end
  end
end
