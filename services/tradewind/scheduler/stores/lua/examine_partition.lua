-- Looks for broken invariants in some of the flows, runs and indexes of a partition, and mends them on a second pass.
-- KEYS: 1 owner. args: base, epoch, now, section (1 to 8), cursor ("" to begin), records (about how many to examine),
--   recheck (names of findings to check a second time, or nil), mend, request_ms, retention_ms.
-- Returns {records, findings {check, subject, problem, mended}, section (0 at the end), cursor, flows (running ones
--   whose schedule is confirmed: {id, schedule epoch, by how many ms the next planned time has passed}), runs (open and
--   submitted)}.
--!include backfilling
--!include findings
--!include naming_call
--!include open_runs
local call = naming_call
local NEWEST, UNENDED, FILLING = 20, 50, 250
local records, running, submitted = 0, {}, {}

-- Lets planned times be tried again that may have waited for a run which no longer counts.
local function try_queued(flow_id) call('ZADD', base .. 'queued', 'XX', 0, flow_id) end

-- Returns a function that takes a run out of the open ones; `rank` is its score as an ended run, nil without a record.
local function forget_open(flow_id, name, rank)
  return function()
    local cycles = flow_key(flow_id) .. ':cycles'
    if rank then call('ZADD', cycles, rank, name) else call('ZREM', cycles, name) end
    call('ZREM', base .. 'open', flow_id .. ':' .. name)
    try_queued(flow_id)
  end
end

-- Compares a run's record with the indexes; `name` is <cycle>:<run>.
local function examine_run(flow_id, name)
  local cycle, run = string.match(name, '^(%d+):(%d+)$')
  if not cycle then
    return found('index-without-record', 'cycles ' .. flow_id .. ':' .. name, 'it names no cycle',
      function() call('ZREM', flow_key(flow_id) .. ':cycles', name) end)
  end
  local key, subject = run_key(flow_id, cycle, run), flow_id .. ':' .. name
  local known = call('HMGET', key, 'status', 'submitted_at', 'run_id', 'backfill', 'parent')
  records = records + 1
  local cycles, open, rank = flow_key(flow_id) .. ':cycles', base .. 'open', cycle * RUNS + run
  local score, due = tonumber(call('ZSCORE', cycles, name) or nil), call('ZSCORE', open, subject)
  local listed = score and score >= STOPPING
  if not known[1] then
    if listed or due then
      found('open-without-record', subject, 'it counts as open, but has no record', forget_open(flow_id, name))
    end
    return
  end
  if not score then
    found('run-not-listed', subject, 'it is on record, but not among the cycles of its flow',
      function() call('ZADD', cycles, 'NX', rank, name) end)
  end
  local left = call('PTTL', key)
  if known[1] ~= 'running' then
    if listed or due then
      found('open-without-record', subject, 'it counts as open, but has ended', forget_open(flow_id, name, rank))
    end
    -- Earlier runs of a cycle stay as long as its latest run.
    if left == -1 and #open_runs(cycles, tonumber(cycle), tonumber(cycle)) == 0 then
      found('no-time-to-live', subject, 'it has ended, but would stay for ever', function()
        call('PEXPIRE', key, args.retention_ms)
      end)
    end
  else
    if not listed or not due then
      found('open-run-forgotten', subject, 'it is running, but nobody looks after it', function()
        if not listed then
          call('ZADD', cycles, (call('HEXISTS', key, 'stop_at') == 1 and STOPPING or OPEN) + rank, name)
        end
        call('ZADD', open, 'NX', time, subject)
      end)
    end
    if left >= 0 then
      found('open-run-expires', subject, 'it is running, but would expire in ' .. left .. ' ms', function()
        call('PERSIST', key)
      end)
    end
    local filling = flow_key(flow_id) .. ':filling'
    if known[4] and call('EXISTS', backfills.key(flow_key(flow_id), known[4])) == 1
      and not call('ZSCORE', filling, name) then
      found('backfill-misses-run', subject, 'it is running, but backfill ' .. known[4] .. ' does not count it',
        function() call('ZADD', filling, known[4], name) end)
    end
    if known[5] and not call('ZSCORE', filling, name) then
      found('sub-flow-in-the-way', subject, 'it runs for a node of another flow, but counts as a cycle of the schedule',
        function()
          call('ZADD', filling, 0, name)
          try_queued(flow_id)
        end)
    end
    if args.section == 2 and tonumber(known[2] or 0) > 0 then submitted[#submitted + 1] = subject end
  end
  local request = request_of(key)
  if request and call('PTTL', base .. 'request:' .. request) == -1 then
    found('no-time-to-live', 'request:' .. request, 'the answer to this request would be remembered for ever',
      function() call('PEXPIRE', base .. 'request:' .. request, args.request_ms) end)
  end
end

local function examine_run_apart(flow_id, name)
  examined('run ' .. flow_id .. ':' .. name, examine_run, flow_id, name)
end

local function examine_backfill(flow_id, id)
  local key, subject = flow_key(flow_id), flow_id .. ':' .. id
  local record = backfills.key(key, id)
  local known = call('HMGET', record, 'status', 'position', 'keep_for')
  -- The entry of an expired backfill stays until enough newer ones have been created.
  if not known[1] then return end
  records = records + 1
  local listed, left = call('ZSCORE', base .. 'backfills', subject), call('PTTL', record)
  if known[1] ~= 'running' then
    if left == -1 then
      found('no-time-to-live', 'backfill ' .. subject, 'it has ended, but would stay for ever', function()
        call('PEXPIRE', record, known[3])
        call('PEXPIRE', record .. ':firings', known[3])
      end)
    end
    return
  end
  if not listed then
    found('backfill-forgotten', subject, 'it is under way, but nobody would begin its cycles',
      function() call('ZADD', base .. 'backfills', 0, subject) end)
  end
  if left >= 0 then
    found('open-backfill-expires', subject, 'it is under way, but would expire in ' .. left .. ' ms', function()
      call('PERSIST', record)
      call('PERSIST', record .. ':firings')
    end)
  end
  if known[2] == '0' and call('ZCOUNT', key .. ':filling', id, id) == 0 then
    found('backfill-not-ended', subject, 'its last cycle has ended, but the backfill has not',
      function() backfills.finish_if_over(key, flow_id, id) end)
  end
end

-- Checks the runs that count as open for backfills: one that has ended would keep the next one from beginning for ever.
-- Those scored 0 run for nodes of other flows.
local function examine_filling(flow_id)
  local key = flow_key(flow_id)
  local filling = call('ZRANGE', key .. ':filling', 0, FILLING - 1, 'WITHSCORES')
  for at = 1, #filling, 2 do
    local name, id = filling[at], filling[at + 1]
    local status = call('HGET', run_key(flow_id, string.match(name, '^(%d+):(%d+)$')), 'status')
    records = records + 1
    if status ~= 'running' and id == '0' then
      found('index-without-record', 'filling ' .. flow_id .. ':' .. name,
        'no such cycle runs for a node of another flow', function() call('ZREM', key .. ':filling', name) end)
    elseif status ~= 'running' then
      found('backfill-counts-ended-run', flow_id .. ':' .. name,
        'backfill ' .. id .. ' counts it as running, but it has ended', function()
          backfills.ended(key, flow_id, id, name, status or 'failed')
        end)
    end
  end
end

-- The parts of a flow, with their types.
local PARTS = {cycles = 'zset', firings = 'zset', queued = 'zset', backfills = 'zset', filling = 'zset',
  revisions = 'hash', history = 'hash', memory = 'hash'}

local function examine_part(key, kind)
  local actual = call('TYPE', key).ok
  assert(actual == kind or actual == 'none', 'it is a ' .. actual .. ' in place of a ' .. kind)
end

local function examine_flow(flow_id)
  local key = flow_key(flow_id)
  for part, kind in pairs(PARTS) do examined(key .. ':' .. part, examine_part, key .. ':' .. part, kind) end
  local known = call('HMGET', key, 'status', 'schedule_epoch', 'next_execution', 'last_cycle', 'request')
  records = records + 1
  if not known[1] then
    assert(call('EXISTS', key) == 0, 'it has no status')
    return found('index-without-record', 'flows ' .. flow_id, 'no such flow is on record',
      function() call('ZREM', base .. 'flows', flow_id) end)
  end
  local in_outbox = call('ZSCORE', base .. 'outbox', flow_id)
  if known[1] == 'deleting' then
    if not in_outbox then
      found('deletion-forgotten', flow_id, 'it is being deleted, but nobody would finish that',
        function() call('ZADD', base .. 'outbox', time, flow_id) end)
    end
    return
  end
  local next_at = tonumber(known[3])
  if known[1] == 'running' and next_at ~= 0 and not in_outbox then
    local epoch = assert(tonumber(known[2]), 'it has no schedule_epoch')
    running[#running + 1] = {flow_id, epoch, next_at > 0 and math.max(0, time - next_at) or 0}
  end
  if call('EXISTS', key .. ':queued') == 1 and not call('ZSCORE', base .. 'queued', flow_id) then
    found('queue-forgotten', flow_id, 'planned times wait for a cycle to end, but nobody would begin theirs',
      function() call('ZADD', base .. 'queued', 0, flow_id) end)
  end
  local request = known[5] and base .. 'request:' .. known[5]
  if request and call('PTTL', request) == -1 then
    found('no-time-to-live', 'request:' .. known[5], 'the answer to this request would be remembered for ever',
      function() call('PEXPIRE', request, args.request_ms) end)
  end
  local names = {}
  local cycles = key .. ':cycles'
  for _, name in ipairs(call('ZRANGEBYSCORE', cycles, STOPPING, '+inf', 'LIMIT', 0, UNENDED)) do names[name] = true end
  for _, name in ipairs(call('ZREVRANGEBYSCORE', cycles, '(' .. digits('%d', STOPPING), 0, 'LIMIT', 0, NEWEST)) do
    names[name] = true
  end
  for cycle = math.max(0, tonumber(known[4]) - NEWEST + 1), tonumber(known[4]) do names[cycle .. ':0'] = true end
  for name in pairs(names) do examine_run_apart(flow_id, name) end
  for _, id in ipairs(call('ZRANGE', key .. ':backfills', 0, -1)) do
    examined('backfill ' .. flow_id .. ':' .. id, examine_backfill, flow_id, id)
  end
  examine_filling(flow_id)
end

-- How a cycle may end.
local ENDED = {completed = true, partial = true, failed = true, timeout = true, cancelled = true}

-- Returns a section that calls `examine` with each member of a sorted set of the partition.
local function scan(set, examine)
  return function()
    local from = args.cursor == '' and '0' or args.cursor
    local following, members = unpack(call('ZSCAN', base .. set, from, 'COUNT', args.records))
    for at = 1, #members, 2 do examined(set .. ' ' .. members[at], examine, members[at]) end
    return following ~= '0' and following or ''
  end
end

local SECTIONS = {
  function()
    -- The index of jobs keeps those that have expired: only its type is examined.
    if args.cursor == '' then examined(base .. 'jobs', examine_part, base .. 'jobs', 'zset') end
    local after, from = args.cursor, args.cursor == '' and '-' or '(' .. args.cursor
    local ids = call('ZRANGE', base .. 'flows', from, '+', 'BYLEX', 'LIMIT', 0, args.records)
    for _, flow_id in ipairs(ids) do
      if records >= args.records then return after end
      examined('flows ' .. flow_id, examine_flow, flow_id)
      after = flow_id
    end
    return #ids == args.records and after or ''
  end,
  scan('open', function(member)
    local flow_id, name = string.match(member, '^(.-):(%d+:%d+)$')
    if not flow_id then
      return found('index-without-record', 'open ' .. member, 'it names no cycle',
        function() call('ZREM', base .. 'open', member) end)
    end
    if call('EXISTS', flow_key(flow_id)) == 1 then
      if not call('ZSCORE', base .. 'flows', flow_id) then
        found('flow-not-listed', flow_id, 'it is on record, but not in the index of flows',
          function() call('ZADD', base .. 'flows', 0, flow_id) end)
      end
      examine_run_apart(flow_id, name)
    else
      found('orphaned-chain-state', member, 'its flow is not on record', function()
        call('PEXPIRE', run_key(flow_id, string.match(name, '^(%d+)'), string.match(name, '(%d+)$')), args.retention_ms)
        forget_open(flow_id, name)()
      end)
    end
  end),
  scan('queued', function(flow_id)
    records = records + 1
    if call('EXISTS', flow_key(flow_id) .. ':queued') == 0 then
      found('index-without-record', 'queued ' .. flow_id, 'no planned time of the flow is waiting',
        function() call('ZREM', base .. 'queued', flow_id) end)
    end
  end),
  scan('backfills', function(member)
    records = records + 1
    local flow_id, id = string.match(member, '^([^:]+):(%d+)$')
    if not flow_id or call('HGET', backfills.key(flow_key(flow_id), id), 'status') ~= 'running' then
      found('index-without-record', 'backfills ' .. member, 'no such backfill is under way',
        function() call('ZREM', base .. 'backfills', member) end)
    end
  end),
  scan('returns', function(member)
    records = records + 1
    local flow_id, name, run_id, status = string.match(member, '^([^:]+):(%S+) (%S+) (%S+)$')
    local known = call('HMGET', flow_key(flow_id or '') .. ':cycle:' .. (name or ''), 'run_id', 'status', 'parent')
    if not (known[3] and known[1] == run_id and known[2] == status) then
      found('index-without-record', 'returns ' .. member, 'no ended cycle of this name ran for a node of another flow',
        function() call('ZREM', base .. 'returns', member) end)
    end
  end),
  scan('ends', function(member)
    records = records + 1
    if not ENDED[string.match(member, '^[^:]+:%d+:%d+ %S+ (%S+)$')] then
      found('index-without-record', 'ends ' .. member, 'it names no end of a cycle',
        function() call('ZREM', base .. 'ends', member) end)
    end
  end),
  scan('outbox', function(flow_id)
    records = records + 1
    if plain(flow_id) ~= flow_id then
      found('index-without-record', 'outbox ' .. flow_id, 'it names no flow',
        function() call('ZREM', base .. 'outbox', flow_id) end)
    end
  end),
  scan('jobs_open', function(job_id)
    records = records + 1
    local key = base .. 'job:' .. job_id
    if call('EXISTS', key) == 1 then
      local job = assert(call('HGET', key, 'job'), 'it has no job')
      return cjson.decode(job)
    end
    found('index-without-record', 'jobs_open ' .. job_id, 'no such job is on record',
      function() call('ZREM', base .. 'jobs_open', job_id) end)
  end),
}

local INDEXES = {'flows', 'open', 'queued', 'backfills', 'returns', 'ends', 'outbox', 'jobs_open'}
local section, cursor = 0, ''
if not overtaken() then
  examined(base .. INDEXES[args.section], function() cursor = SECTIONS[args.section]() end)
  section = cursor ~= '' and args.section or SECTIONS[args.section + 1] and args.section + 1 or 0
end
return cmsgpack.pack({records, findings, section, cursor, running, submitted})
