-- Looks for broken invariants in some of the records and index entries of a shard, and mends them on a second pass.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies (empty), at (JSON, where to go on, "" for the
-- beginning), records (about how many to examine), recheck (names of findings to check a second time, or nil), mend,
-- cleaner (examine only if this replica leads the cleaning, or nobody has until now; "" for always).
-- Returns {records, findings {[check, subject, problem, mended]}, at ("" at the end), effects}.
--!include doctor_queues
--!include doctor_runs
--!include doctor_tasks
--!include leading
--!include claim
doctor.open()
local state = args.at ~= '' and cjson.decode(args.at) or {1, '0', {}}
local section, cursor, jobs = state[1], state[2], state[3]

local function scan(set, examine)
  return function()
    local following, found = unpack(call('ZSCAN', base .. set, cursor, 'COUNT', args.records))
    doctor.records = doctor.records + #found / 2
    for at = 1, #found, 2 do examined(set .. ' ' .. found[at], examine, found[at], tonumber(found[at + 1]), jobs) end
    return following
  end
end

-- Returns a section that calls `examine` with members by rank, as far as the budget goes.
local function range(set, members, examine)
  return function()
    local first = tonumber(cursor)
    local found = members(first)
    for at, member in ipairs(found) do
      if doctor.records >= args.records then return tostring(first + at - 1) end
      doctor.records = doctor.records + 1
      examined(set .. ' ' .. member, examine, member)
    end
    return #found > 0 and tostring(first + #found) or '0'
  end
end

local function ranked(set)
  return function(first) return call('ZRANGE', base .. set, first, first + args.records - 1) end
end

local USERS = 100
-- Examines the queues of one node type after another; of a type with many users, USERS in each step.
local function queues_of_types()
  local rank, first = string.match(cursor, '^(%d+):?(%d*)$')
  local node_type = call('ZRANGE', base .. 'ready_types', rank, rank)[1]
  if not node_type then return '0' end
  first = tonumber(first) or 0
  local users = doctor.members('ring:' .. node_type, first, first + USERS - 1)
  if #users == 0 and first == 0 then doctor.type_without_turns(node_type) end
  for at, user in ipairs(users) do
    if doctor.records >= args.records then return rank .. ':' .. (first + at - 1) end
    examined('ready:' .. node_type .. ':' .. user, doctor.queue, node_type, user)
  end
  if #users == USERS then return rank .. ':' .. (first + USERS) end
  return tostring(rank + 1)
end

local function bounded_types(first)
  local names = {}
  for node_type in pairs(limits.type_running or {}) do names[#names + 1] = node_type end
  table.sort(names)
  return {unpack(names, first + 1, first + args.records)}
end

local INDEXES = {
  'node_tasks_list', 'inflight', 'start_deadlines', 'delayed', 'ready_types', 'parked', 'blocked_of', 'limit',
  'to_clean', 'todo',
}
local SECTIONS = {
  scan('node_tasks_list', doctor.node_task), scan('inflight', doctor.lease),
  scan('start_deadlines', doctor.start_deadline), scan('delayed', doctor.delay), queues_of_types,
  range('parked', ranked('parked'), doctor.parked), range('blocked_of', ranked('blocked_of'), doctor.group),
  range('limit', bounded_types, function(name) doctor.limit('type:' .. name) end),
  scan('to_clean', function(name)
    local kind, rest = string.match(name, '^([^:]+):(.+)$')
    if kind == 'worker' then doctor.worker(rest) elseif kind == 'run' then doctor.open_run(rest) end
  end),
  range('todo', function(first) return call('LRANGE', base .. 'todo', first, first + args.records - 1) end,
    doctor.work_left),
}

if args.cleaner ~= '' and not leads(args.cleaner) then
  return cmsgpack.pack({records = 0, findings = {}, at = '', effects = effects})
end
local at = ''
if args.at == '' then
  for _, name in ipairs(INDEXES) do doctor.index(name, name == 'todo' and 'list' or 'zset') end
  doctor.index('ended_runs', 'zset')
  doctor.index('walks', 'list')
  doctor.index('last_events', 'hash')
end
repeat
  if #jobs > 0 then
    local job = table.remove(jobs)
    examined(job[1] .. ':' .. job[2], function() jobs[#jobs + 1] = doctor.count(job) end)
  else
    local following = '0'
    examined(base .. INDEXES[section], function() following = SECTIONS[section]() end)
    cursor = following
    if cursor == '0' then section = section + 1 end
  end
until doctor.records >= args.records or #jobs == 0 and not SECTIONS[section]
if #jobs > 0 or SECTIONS[section] then at = cjson.encode({section, cursor, jobs}) end
local changed = false
for _, finding in ipairs(findings) do changed = changed or finding[4] end
return cmsgpack.pack({records = doctor.records, findings = findings, at = at,
  effects = changed and conclude() or effects})
