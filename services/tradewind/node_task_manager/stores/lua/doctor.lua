--!include fan_out
--!include findings
--!include naming_call
-- The invariants of the records and indexes of a shard, as docs/doctor.md lists them. Nothing is changed, except by
-- mending what the second pass finds.
local doctor = {}
do
  local call = naming_call

  local function ttl(key) return call('PTTL', base .. key) end
  local function removal(set, member) return function() remove(set, member) end end

  -- `idle`: whether earlier scripts have left no work; nil while unknown. `seen`: what is looked at once in a script.
  local idle, walking, plans_on_record, seen

  -- To be called first.
  function doctor.open()
    doctor.records = 0
    idle, walking, plans_on_record, seen = nil, {}, {}, {}
  end

  -- Checks that an index is of the type that scripts need: with another one they fail, those that mend as well. What
  -- was in it is lost; other checks put back what the records tell. Returns whether it is of another type.
  function doctor.index(name, kind)
    if seen[name] == nil then
      local actual = call('TYPE', base .. name).ok
      seen[name] = actual ~= kind and actual ~= 'none'
      if seen[name] then
        found('index-of-another-type', name, 'it is a ' .. actual .. ' in place of a ' .. kind
          .. ', so that scripts of the shard fail', function() call('DEL', base .. name) end)
      end
    end
    return seen[name]
  end

  -- Reads an index. One of another type counts as empty.
  local function read(kind, verb, name, ...)
    local reply = redis.pcall(verb, base .. name, ...)
    if type(reply) ~= 'table' or not reply.err then return reply end
    if not doctor.index(name, kind) then error({err = base .. name .. ': ' .. reply.err}) end
    return nil
  end

  local function score_of(set, member) return read('zset', 'ZSCORE', set, member) end

  -- Returns the members of a set by rank, from the first to the last.
  function doctor.members(set, first, last) return read('zset', 'ZRANGE', set, first, last) or {} end

  local function all_done()
    if idle == nil then idle = call('EXISTS', base .. 'todo') == 0 end
    return idle
  end

  -- Whether records of a run are being removed, or stay only for a later run of its cycle.
  local function is_being_removed(run)
    if walking[run] == nil then
      local cycle, number = string.match(run, '^([^:]+:%d+:)(%d+)$')
      walking[run] = call('HEXISTS', base .. 'run:' .. run, 'dropped') == 1
        or cycle ~= nil and call('EXISTS', base .. 'run:' .. cycle .. number + 1) == 1
    end
    return walking[run]
  end

  local function has_plan(comp)
    if plans_on_record[comp.plan] == nil then
      plans_on_record[comp.plan] = stored_plans.has(comp.plan)
    end
    return plans_on_record[comp.plan]
  end

  local function is_leased(record) return record and record.status == 'running' and record.worker_id end
  local function is_delayed(record) return (tonumber(read_rest(record).retry_at) or 0) > 0 end
  local function notes_slot(record, limit)
    return is_leased(record) and string.find(' ' .. (record.slots or '') .. ' ', ' ' .. limit .. ' ', 1, true)
  end

  local function free_slot(limit, id)
    return function() slots.release(limit, id) end
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
        or read('set', 'SISMEMBER', 'blocked_by:' .. limit, group) ~= 1 then
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

  -- A node task holds no slot of a limit that it does not run under.
  local function examine_slots(id, record, comp, entry)
    for _, limit in ipairs(slots.of(entry, comp)) do
      if score_of('slots:' .. limit, id) and not notes_slot(record, limit) then
        found('slot-without-holder', limit .. ' ' .. id, 'it does not run under this limit but holds a slot of it',
          free_slot(limit, id))
      end
    end
  end

  local function examine_listing(id)
    if not score_of('node_tasks_list', id) then
      found('record-not-listed', id, 'it is not in the list of all node tasks',
        function() put('node_tasks_list', id, stamp) end)
    end
  end

  -- Counts nodes by status from their records, some nodes in each step.
  local COUNTED = {'completed', 'failed', 'terminated', 'skipped'}
  local PIECES = 250
  local function ended_of(comp) return comp.completed + comp.failed + comp.terminated + comp.skipped end

  -- Goes on with a count {run, component, place, ended at the beginning, counts}; returns it when there is more.
  function doctor.count(job)
    local run, id, place, began, counts = job[1], job[2], job[3], job[4], job[5]
    local comp = component(run, id)
    if not comp or not has_plan(comp) or comp.status == 'finished' and is_being_removed(run) then return end
    local ids, before
    local last = math.min(place + PIECES, comp.nodes) - 1
    for at = place, last do
      if not ids or at % PIECE == 0 then ids, before = piece_of(comp.plan, 'ids', at) end
      local state = call('HGET', comp.key, ids[at - before] .. ':state')
      local status = state and cmsgpack.unpack(state)
      if status then counts[status] = (counts[status] or 0) + 1 end
      if status and not TERMINAL[status] then examine_listing(task_of(run, ids[at - before])) end
    end
    doctor.records = doctor.records + last - place + 1
    if last + 1 < comp.nodes then return {run, id, last + 1, began, counts} end
    -- Some nodes have ended meanwhile: leave it to the next pass.
    if ended_of(comp) ~= began then return end
    local wrong = {}
    for _, status in ipairs(COUNTED) do
      if comp[status] ~= (counts[status] or 0) then
        wrong[#wrong + 1] = (counts[status] or 0) .. ' ' .. status .. ' nodes, counted as ' .. comp[status]
      end
    end
    if #wrong > 0 then
      -- A component whose end was announced stays as it is.
      local mend = comp.status ~= 'finished' and function()
        for _, status in ipairs(COUNTED) do
          comp[status] = counts[status] or 0
          if status ~= 'completed' then write(comp, status, comp[status]) end
        end
        comp.eventful, comp.moved = true, true
        comp.open = comp.nodes - ended_of(comp)
        if comp.open == 0 then component_ended(comp) end
      end or nil
      found('component-counts', run .. ':' .. id, 'it has ' .. table.concat(wrong, ', '), mend)
    elseif comp.open == 0 and comp.status == 'running' and all_done() then
      found('component-not-finished', run .. ':' .. id, 'all its nodes have ended, but no event says so',
        function() component_ended(comp) end)
    elseif comp.status == 'running' and comp.early ~= 'held' and comp.early ~= 'keep' and all_done()
      and not (counts.pending or counts.running or counts.suspended) then
      found('component-stalled', run .. ':' .. id, comp.open .. ' of its nodes have not ended, but none of its nodes '
        .. 'runs or waits for anything: stop the run, and run it again')
    end
    if comp.partition == NO_PARTITION and comp.nodes <= PIECES then
      local running = tonumber(stored(comp, 'running') or 0)
      if running ~= (counts.running or 0) then
        found('batch-counts', run, (counts.running or 0) .. ' of its nodes run, counted as ' .. running,
          function() call('HSET', comp.key, comp.at .. 'running', counts.running or 0) end)
      end
    end
  end

  local function examine_ttls(comp, open, parts)
    local name, left = 'run:' .. comp.run, ttl('run:' .. comp.run)
    if open and left >= 0 then
      found('open-run-expires', name, 'it is open but would expire in ' .. left .. ' ms', function()
        call('PERSIST', comp.key)
      end)
    elseif not open and left == -1 and all_done() then
      found('no-time-to-live', name, 'it has ended but would stay for ever',
        function() call('PEXPIRE', comp.key, limits.retention_ms) end)
    end
    if comp.status == 'running' and has_plan(comp) and ttl('plan:' .. comp.plan) >= 0 then
      found('open-run-expires', 'plan:' .. comp.plan, 'an open run needs it, but it would expire',
        function() call('PERSIST', base .. 'plan:' .. comp.plan) end)
    end
    local counted = parts and tonumber(call('HGET', comp.key, 'open')) or 0
    if parts and counted ~= parts then
      found('run-counts', comp.run, parts .. ' of its components are open, but it counts ' .. counted,
        (parts > 0 or counted < 0) and function() call('HSET', comp.key, 'open', parts) end or nil)
    end
  end

  -- What an open run tells others goes to streams and lists of others.
  local function examine_reports(comp)
    if comp.partition ~= NO_PARTITION then doctor.index('events:' .. digits[comp.partition], 'stream') end
    if comp.run == task_of(comp.run, '') then doctor.index('task_events:' .. comp.run, 'stream') end
    doctor.index('notifications:' .. comp.user_id, 'stream')
    doctor.index('dead_letters:' .. comp.user_id, 'zset')
  end

  -- A run outside any flow is in the list of its user. A run of a flow is in the index of the flow: among the open ones
  -- while it is open, and after its end until the cleaner has seen it.
  local function examine_index(comp, open)
    if comp.partition == NO_PARTITION then
      local score = tonumber(score_of(user_runs.list(comp.user_id, comp.run), comp.run))
      if open and (not score or score < user_runs.OPEN) then
        found('run-not-listed', comp.run, 'it is open but not among the open ones in the list of its user', function()
          user_runs.put(comp.user_id, comp.run, user_runs.OPEN + flow_runs.begun_at(comp.run, comp.id))
        end)
      end
      return
    end
    local flow, name = flow_runs.names(comp.run)
    local index = 'flow_runs:' .. flow
    local score = tonumber(score_of(index, name))
    if open and (not score or score < flow_runs.OPEN) then
      found('run-not-listed', comp.run, 'it is open, but deleting its flow would leave it behind',
        function() put(index, name, flow_runs.OPEN + flow_runs.number(name)) end)
    elseif open and not score_of('to_clean', 'run:' .. comp.run) then
      found('run-not-listed', comp.run, 'it is open, but the scheduler would not be asked whether it still is',
        function() put('to_clean', 'run:' .. comp.run, time) end)
    elseif not open and (not score or score >= flow_runs.OPEN) and not score_of('to_clean', 'run:' .. comp.run)
      and all_done() then
      found('run-not-listed', comp.run, 'it has ended, but the index of its flow does not say so',
        function() put('to_clean', 'run:' .. comp.run, time) end)
    end
    if seen[index] then return end
    seen[index] = true
    for _, other in ipairs(read('zset', 'ZRANGE', index, flow_runs.OPEN, 'inf', 'BYSCORE', 'LIMIT', 0, 20) or {}) do
      local gone = 'run:' .. flow .. ':' .. other
      -- What has expired is taken out when its run is cleaned.
      if call('EXISTS', base .. gone) == 0 and not score_of('to_clean', gone) then
        found('index-without-record', index .. ' ' .. other, 'no such run is on record', removal(index, other))
      end
    end
  end

  -- Examines a component, and with the first one of a run the run itself.
  local function examine_component(comp, jobs)
    if comp.status == 'finished' and is_being_removed(comp.run) then return end
    local ids = component_ids(comp.run)
    if #ids ~= (comp.parts or 1) then
      found('component-without-run', comp.run .. ':' .. comp.id, 'its run does not list it, and would never end: '
        .. 'remove the key ' .. comp.key .. ', and the run begins again')
      return
    end
    local open, parts = comp.status ~= 'finished', 0
    for _, id in ipairs(#ids > 1 and ids or {}) do
      local v = call('HMGET', comp.key, id .. '/facts', id .. '/state')
      local status = packing.state_of(v[2])
      -- If one component is being removed, so are the others.
      if not v[1] or status == 'purged' then return end
      if status ~= 'finished' then parts = parts + 1 end
    end
    doctor.records = doctor.records + #ids
    open = open or parts > 0
    if open then examine_reports(comp) end
    examine_ttls(comp, open, #ids > 1 and ids[1] == comp.id and parts)
    examine_index(comp, open)
    jobs[#jobs + 1] = {comp.run, comp.id, 0, ended_of(comp), {}}
    return open
  end

  local function missing(id, listed_at)
    local run = run_of(id)
    local open = run and call('EXISTS', base .. 'run:' .. run) == 1 and ttl('run:' .. run) == -1
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
      if not call('HGET', key, record.component_id .. '/facts') and ttl('run:' .. record.run) == -1 then
        local alone = #component_ids(record.run) < 2
        found('task-without-component', id, 'its component is not on record, and '
          .. (alone and 'it would stay for ever'
            or 'its run would never end: remove the key ' .. key .. ', and the run begins again'),
          alone and function() call('PEXPIRE', key, limits.retention_ms) end or nil)
      end
      return
    end
    if not has_plan(comp) then
      if comp.status == 'running' then
        found('plan-missing', comp.plan, 'an open component needs it, but it is not on record: stop the run '
          .. comp.run)
      end
      return
    end
    local entry = node(comp.plan, record.index)
    if is_leased(record) then
      examine_lease(id, record)
    elseif score_of('inflight', id) then
      found('lease-without-task', id, 'it is ' .. record.status .. ', but a lease of it is on record',
        removal('inflight', id))
    end
    examine_slots(id, record, comp, entry)
    local at = is_delayed(record) and not TERMINAL[record.status] and tonumber(record.retry_at)
    if at and tonumber(score_of('delayed', id)) ~= at then
      found('waiting-not-delayed', id, 'it is due for another attempt, but nothing would begin it', function()
        put('delayed', id, at)
      end)
    elseif not at and record.status == 'pending' then
      examine_place(id, record, comp, entry)
    end
    if entry.inputs == 0 and not fan_out.is_item(id) and record.index == piece_of(comp.plan, 'entries', 0)[1] then
      examine_component(comp, jobs)
    end
  end

  -- Entries of indexes: each names a node task whose record agrees.
  function doctor.lease(id)
    if not is_leased(task(id)) then
      found('lease-without-task', id, 'a lease is on record, but no such node task runs', removal('inflight', id))
    else
      examine_listing(id)
    end
  end

  -- Looks at the first node task of each component of an open run: through it all the others are found.
  function doctor.open_run(run)
    for _, id in ipairs(component_ids(run)) do
      local comp = component(run, id)
      if comp and comp.status == 'running' and has_plan(comp) then
        local first = piece_of(comp.plan, 'entries', 0)[1]
        local ids, before = piece_of(comp.plan, 'ids', first)
        local name = task_of(run, ids[first - before])
        if task(name) then examine_listing(name) end
      end
      doctor.records = doctor.records + 1
    end
  end

  function doctor.start_deadline(id)
    local record = task(id)
    if not record or record.status ~= 'pending' or is_delayed(record) then
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
      if not comp or record.status ~= 'pending' or is_delayed(record) or read_rest(record).blocked
        and record.blocked ~= ''
        or comp.user_id ~= user or has_plan(comp) and node(comp.plan, record.index).type ~= node_type then
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
    local user, node_type = string.match(member, '^(.+):(.+)$')
    if slots.held('user:' .. user) == 0 then
      found('held-back-with-room', 'parked ' .. member, 'the user is held back, but none of their node tasks run',
        function() readmission.unpark(user, node_type) end)
    end
  end

  -- Examines the oldest holders of a limit's slots: slots that leaked are among them.
  local HOLDERS = 100
  local function examine_limit(limit)
    if seen[limit] or string.sub(limit, 1, 5) == 'pace:' then return end
    seen[limit] = true
    local ids = doctor.members('slots:' .. limit, 0, HOLDERS - 1)
    doctor.records = doctor.records + #ids + 1
    for _, id in ipairs(ids) do
      if not notes_slot(task(id), limit) then
        found('slot-without-holder', limit .. ' ' .. id, 'it does not run under this limit but holds a slot of it',
          free_slot(limit, id))
      end
    end
  end
  doctor.limit = examine_limit

  -- Examines a group that a limit holds back, named with its user in front: `<user>|<limit>|<type>:<user>:<most>`.
  function doctor.group(member)
    local name = string.match(member, '^[^|]*|(.+)$')
    local limit, node_type, user, most = string.match(name, '^([^|]*)|([^:]+):([^:]+):(.+)$')
    examine_limit(limit)
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

  function doctor.worker(worker)
    for _, id in ipairs(doctor.members('worker_tasks:' .. worker, 0, HOLDERS - 1)) do
      local record = task(id)
      doctor.records = doctor.records + 1
      if not is_leased(record) or record.worker_id ~= worker then
        found('index-without-record', 'worker_tasks:' .. worker .. ' ' .. id, 'the worker does not run it',
          removal('worker_tasks:' .. worker, id))
      end
    end
  end

  function doctor.work_left(text)
    if todo.unpacked(text) then return end
    local item = cmsgpack.unpack(text)
    found('todo-of-nothing', item[1] .. ' ' .. item[2] .. ':' .. item[3], 'work is left for a component that is gone',
      function() call('LREM', base .. 'todo', 1, text) end)
  end
end
