-- Registers a flow, or a new revision of an existing one, which keeps its cycles, creation time and status.
-- KEYS: 1 owner, 2 hash of the flow.
-- args: base, epoch (0), now, flow_id, user_id ("" keeps the present one, else "default"), config, structure, labels,
--   digest (of all these), schedule (JSON), interval (ms, 0 unless the schedule is an interval that begins with the
--   flow), first (ms, planned next when the schedule changes, below 0 for a flow that begins on events; 0: an interval
--   from now), passed ({first, last, count} of planned times that have come and that the new schedule leaves out, or
--   false), overlap, keep, pause_after, by, note, kept (how many revisions, including the new one), etag ("" for the
--   current revision), owner_only (whether to leave another user's flow as it is), request ("" for none), payload,
--   request_ms.
-- Returns {outcome (created, changed, same, repeated, deleting, reused, moved, not_found, not_owner), revision}.
--!include open_runs
--!include firings
local flow = KEYS[2]
local revisions, history = flow .. ':revisions', flow .. ':history'

-- Notes the facts about a revision: {made at, by, note, digest, labels (JSON), the cycle that it begins with, the cycle
-- that its successor begins with, -1 while it is the current one}.
local function note_revision(revision, first_cycle)
  call('HSET', history, revision,
    cmsgpack.pack({time, args.by, args.note, args.digest, args.labels, first_cycle, -1}))
end

-- Keeps the current revision readable when a new one replaces it. The newest revisions are kept, and older ones that
-- open runs still use.
local function supersede(revision, first_cycle)
  call('HSET', revisions, revision, call('HGET', flow, 'config'))
  local known = call('HGET', history, revision)
  if known then
    known = cmsgpack.unpack(known)
    known[7] = first_cycle
    call('HSET', history, revision, cmsgpack.pack(known))
  end
  for _, older in ipairs(call('HKEYS', revisions)) do
    if tonumber(older) <= revision + 1 - args.kept then
      known = call('HGET', history, older)
      known = known and cmsgpack.unpack(known)
      if not (known and #open_runs(flow .. ':cycles', known[6], known[7] - 1) > 0) then
        call('HDEL', revisions, older)
        call('HDEL', history, older)
      end
    end
  end
end

-- Returns what a new schedule plans next: an interval begins anew at the next planned time, or sooner.
local function planned_next(next_execution)
  if args.first ~= 0 then return args.first end
  local anchor = time + args.interval
  return next_execution > 0 and next_execution < anchor and next_execution or anchor
end

-- Plans the next time of a running flow by its new schedule, and has the trigger service notified.
local function reschedule(next_execution, epoch)
  if args.passed and next_execution == args.passed[1] then
    firings.settle_passed(flow, args.passed, 'dropped', 'the schedule was changed')
  end
  local anchor = planned_next(next_execution)
  call('HSET', flow, 'anchor', anchor, 'next_execution', anchor, 'schedule_epoch', math.max(epoch + 1, time))
  call('ZADD', base .. 'outbox', time, args.flow_id)
end

local function remember(outcome, revision)
  if args.request ~= '' then
    call('SET', base .. 'request:' .. args.request, args.payload .. ' ' .. revision, 'PX', args.request_ms)
    call('HSET', flow, 'request', args.request)
  end
  return {outcome, revision}
end

-- Puts a new flow on record, without its definition.
local function create()
  local tombstone_epoch = tonumber(call('GET', base .. 'tombstone:' .. args.flow_id) or 0)
  call('HSET', flow, 'id', args.flow_id, 'status', 'registered', 'last_cycle', -1, 'next_execution', 0,
    'created_at', time, 'schedule_epoch', math.max(tombstone_epoch + 1, time))
  call('ZADD', base .. 'flows', 0, args.flow_id)
end

local function register()
  local status, revision, user_id, created_at = unpack(call('HMGET', flow, 'status', 'revision', 'user_id',
    'created_at'))
  revision = tonumber(revision or 0)
  if status == 'deleting' then return {'deleting', 0} end
  if args.owner_only and status and user_id ~= args.user_id then return {'not_owner', 0} end
  if args.request ~= '' then
    local first = call('GET', base .. 'request:' .. args.request)
    if first then
      if string.match(first, '^%S+') ~= args.payload then return {'reused', 0} end
      if status then return {'repeated', revision} end
    end
  end
  if args.etag ~= '' then
    if not status then return {'not_found', 0} end
    if args.etag ~= created_at .. '-' .. digits('%d', revision) then return {'moved', revision} end
  end
  local user = args.user_id ~= '' and args.user_id or user_id or 'default'
  local digest, schedule, next_execution, epoch, last_cycle, paused_next = unpack(
    call('HMGET', flow, 'digest', 'schedule', 'next_execution', 'schedule_epoch', 'last_cycle', 'paused_next'))
  if status and digest == args.digest and user_id == user then return remember('same', revision) end
  local first_cycle = tonumber(last_cycle or -1) + 1
  if status then supersede(revision, first_cycle) else create() end
  -- The new overlap policy may let begin what waits.
  call('ZADD', base .. 'queued', 'XX', 0, args.flow_id)
  call('HSET', flow, 'user_id', user, 'config', args.config, 'structure', args.structure, 'labels', args.labels,
    'digest', args.digest, 'schedule', args.schedule, 'overlap', args.overlap, 'keep_cycles', args.keep,
    'pause_after', args.pause_after, 'revision', revision + 1, 'updated_at', time)
  note_revision(revision + 1, first_cycle)
  -- A flow that begins on ends of its user's flows listens for other ends when it changes hands.
  local planned_anew = schedule ~= args.schedule or (args.first < 0 and user_id ~= user)
  if status == 'running' and planned_anew then
    reschedule(tonumber(next_execution), tonumber(epoch))
  elseif paused_next == '0' and schedule ~= args.schedule then
    call('HSET', flow, 'paused_next', planned_next(0))
  end
  return remember(status and 'changed' or 'created', revision + 1)
end

return cmsgpack.pack(register())
