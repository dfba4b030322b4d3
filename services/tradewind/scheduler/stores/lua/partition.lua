-- Keys, fencing and announcements for partitions of flows. Uses args: now; and, unless the script works in groups (see
-- `answers_of`), base (key prefix with its tag), epoch (the caller's as owner, 0 when it does not act as owner), KEYS:
-- 1 owner. `digits` formats whole numbers; `..` would take twice as long.
local call, digits, unpack_limit = redis.call, string.format, cmsgpack.unpack_limit
-- `<flow>:cycles` scores a run by cycle * RUNS + run, where RUNS is the most runs that a cycle may have. Open runs that
-- are asked to stop score STOPPING more than that, other open runs OPEN more.
local RUNS, STOPPING, OPEN = 1024, 2 ^ 45, 2 ^ 46
local time, base, epoch, owner, has_listeners, changes
-- What conclude() writes: `checked` values of `checks` and `closing` of `closed`. The tables are kept from run to run,
-- since growing new ones would be slower.
local checks, closed, checked, closing = {}, {}, 0, 0

local function enter(its_base, its_epoch, its_owner, any_listeners)
  base, epoch, owner, has_listeners = its_base, its_epoch, its_owner, any_listeners
  changes, checked, closing = nil, 0, 0
end
fresh(function()
  time = now(args.now)
  enter(args.base, args.epoch, KEYS[1], true)
end)

local function flow_key(flow_id) return base .. 'flow:' .. flow_id end
local function run_key(flow_id, cycle, run) return flow_key(flow_id) .. ':cycle:' .. cycle .. ':' .. run end
local function logs_key(flow_id, cycle) return flow_key(flow_id) .. ':logs:' .. cycle end

-- Returns the request that a run was begun for, nil when there is none. It is one of the run's facts (see
-- run_codec.py); a run that took the place of another one has that one's request in a field of its own.
local function request_of(run)
  local REQUEST = 13
  local known = call('HMGET', run, 'request', 'facts')
  local request = known[1] or known[2] and cjson.decode(known[2])[REQUEST]
  return request ~= '' and request or nil
end

-- Whether a replica with a higher epoch owns the partition by now, or its key is of another type: then nobody does.
local function overtaken()
  if epoch == 0 then return false end
  local known = redis.pcall('HGET', owner, 'epoch')
  return known and (type(known) == 'table' or (tonumber(known) or 0) > epoch)
end

-- Lines are `<ms> <LEVEL> <source> <text>`; beyond LINES, the oldest go. A flow's `logged` is its newest cycle with
-- lines. What somebody has put in place of the lines keeps no cycle from going on.
local LINES = 1000
local function append_line(flow_id, cycle, level, source, text)
  local key, flow = logs_key(flow_id, cycle), flow_key(flow_id)
  local count = redis.pcall('RPUSH', key, digits('%d %s %s ', time, level, source) .. text)
  if of_another_type(count) then return end
  if count > LINES then call('LTRIM', key, -LINES, -1) end
  if tonumber(call('HGET', flow, 'logged') or -1) < tonumber(cycle) then call('HSET', flow, 'logged', cycle) end
end

-- Notes a change: {flow_id, cycle, run, version, changed fields}, and for an end its status and time. Listeners read
-- the record when no fields are given. Nothing is noted if nobody listens.
local function publish_change(flow_id, cycle, run, version, fields, ending, at)
  if not has_listeners then return end
  changes = changes or {}
  changes[#changes + 1] = {flow_id, cycle, run, version, fields, ending, at}
end

-- Sets when an open run, `<flow>:<cycle>:<run>`, is to be checked next.
local function schedule_check(at, run)
  checks[checked + 1], checks[checked + 2] = at, run
  checked = checked + 2
end

-- Takes a run out of the open ones: it is not checked again.
local function close(run)
  closing = closing + 1
  closed[closing] = run
end

-- The numbers of the last cycles of flows, by their keys, that have yet to be written.
local last_cycles = {}
fresh(function() if next(last_cycles) then last_cycles = {} end end)

local function write_last_cycle(key)
  if not last_cycles[key] then return end
  call('HSET', key, 'last_cycle', last_cycles[key])
  last_cycles[key] = nil
end

-- Publishes the changes, and writes when runs are to be checked, and the last cycles of flows.
local function conclude()
  for key in pairs(last_cycles) do write_last_cycle(key) end
  if checked > 0 then call('ZADD', base .. 'open', unpack(checks, 1, checked)) end
  if closing > 0 then call('ZREM', base .. 'open', unpack(closed, 1, closing)) end
  if changes then call('PUBLISH', base .. 'changes', cmsgpack.pack(changes)) end
end

-- Returns each group's channel and how many listen to it; nil on a cluster, where a node only knows its own listeners.
local function listeners_of(groups)
  if args.cluster then return nil end
  local channels = {}
  for g = 1, #KEYS do channels[g] = groups[4 * g - 3] .. 'changes' end
  return call('PUBSUB', 'NUMSUB', unpack(channels))
end

-- The offset of the next item of a group, below 0 at the end.
local following

-- The flows for which nothing was done, each with why: a record that this needs has been changed by hand so that it
-- cannot be read. The other flows must not suffer.
local unreadable = {}
fresh(function() if next(unreadable) then unreadable = {} end end)

-- Notes that a flow is unreadable if that is why something has failed; else raises the error again.
local function note_unreadable(flow_id, problem)
  local why = type(problem) == 'table' and problem.err or problem
  if problem ~= why and not string.find(why, '^WRONGTYPE') then error(problem) end
  unreadable[#unreadable + 1] = {flow_id, why}
end

local function act_on(act, next_at, flow_id, ...)
  following = next_at
  local readable, answer = pcall(act, flow_id, ...)
  if readable then return answer end
  note_unreadable(flow_id, answer)
  return {'unreadable', 0, -1, 0, 0, 0}
end

-- Runs act(...) for every item of `groups`, which has base, epoch, first and items of each partition. `items` is itself
-- MessagePack: an array of `width` values for each item, the first of which begins at `first`. Items are read one at a
-- time, since a table of all of them would cost more than the items. KEYS: the owner of each group's partition. Returns
-- the time, for each group the results of its items, none when it is overtaken by now, and what is `unreadable`.
-- `finish`, if given, is called after the items of each group.
local function answers_of(groups, width, act, finish)
  local replies, listeners = {}, listeners_of(groups)
  for g = 1, #KEYS do
    local at = 4 * g
    local answers, items, count = {}, groups[at], 0
    enter(groups[at - 3], groups[at - 2], KEYS[g], not listeners or listeners[2 * g] > 0)
    if not overtaken() then
      following = groups[at - 1]
      while following > 0 do
        count = count + 1
        -- Skip the first byte, which begins the array.
        answers[count] = act_on(act, unpack_limit(items, width, following + 1))
      end
      if finish then finish() end
      conclude()
    end
    replies[g] = answers
  end
  return cmsgpack.pack({time, replies, unreadable})
end
