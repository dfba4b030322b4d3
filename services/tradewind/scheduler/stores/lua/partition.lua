-- Keys, fencing and announcements of partitions of flows. Uses args: now, and base (key prefix with its tag), epoch (the
-- caller's as owner, 0 when it does not act as one), KEYS: 1 owner, unless it works in groups: then `answers_of` does it.
-- `digits` is how a whole number is written, which `..` takes twice as long for.
local call, digits, unpack_limit = redis.call, string.format, cmsgpack.unpack_limit
-- `<flow>:cycles` holds each run at the number of its cycle times the runs that one may have, and its own; above all of these
-- those that are asked to stop, and above those the ones that go on: STOPPING and OPEN more.
local RUNS, STOPPING, OPEN = 1024, 2 ^ 45, 2 ^ 46
local time, base, epoch, owner, changes, checks, closed, heard

local function enter(its_base, its_epoch, its_owner, is_heard)
  base, epoch, owner, changes, checks, closed, heard = its_base, its_epoch, its_owner, {}, {}, {}, is_heard
end
fresh(function()
  time = now(args.now)
  enter(args.base, args.epoch, KEYS[1], true)
end)

local function flow_key(flow_id) return base .. 'flow:' .. flow_id end
local function run_key(flow_id, cycle, run) return flow_key(flow_id) .. ':cycle:' .. cycle .. ':' .. run end
local function logs_key(flow_id, cycle) return flow_key(flow_id) .. ':logs:' .. cycle end

-- Whether somebody with a higher epoch owns the partition by now.
local function overtaken()
  if epoch == 0 then return false end
  local known = call('HGET', owner, 'epoch')
  return known and tonumber(known) > epoch
end

-- Lines are `<ms> <LEVEL> <source> <text>`; the oldest go when there are too many. Of a flow, `logged` is the newest cycle that
-- has any.
local LINES = 1000
local function append_line(flow_id, cycle, level, source, text)
  local key, flow = logs_key(flow_id, cycle), flow_key(flow_id)
  if call('RPUSH', key, digits('%d %s %s ', time, level, source) .. text) > LINES then
    call('LTRIM', key, -LINES, -1)
  end
  if tonumber(call('HGET', flow, 'logged') or -1) < tonumber(cycle) then call('HSET', flow, 'logged', cycle) end
end

-- A change is {flow_id, cycle, run, version, changed fields}, and of an end the status and when; without any of these the record
-- has to be read. Nothing is noted where nobody listens.
local function announce(flow_id, cycle, run, version, fields, ending, at)
  if heard then changes[#changes + 1] = {flow_id, cycle, run, version, fields, ending, at} end
end

-- When an open run, `<flow>:<cycle>:<run>`, is to be looked at next.
local function check_at(at, run)
  checks[#checks + 1] = at
  checks[#checks + 1] = run
end

-- Nobody looks at a run any more.
local function close(run) closed[#closed + 1] = run end

-- Writes what was to be told and when runs are to be looked at.
local function conclude()
  if #checks > 0 then call('ZADD', base .. 'open', unpack(checks)) end
  if #closed > 0 then call('ZREM', base .. 'open', unpack(closed)) end
  if #changes > 0 then call('PUBLISH', base .. 'changes', cmsgpack.pack(changes)) end
end

-- How many listen to the channel of each group; nil on a cluster, whose nodes know of their own listeners only.
local function listeners_of(groups)
  if args.cluster then return nil end
  local channels, counts = {}, {}
  for g, group in ipairs(groups) do channels[g] = group[1] .. 'changes' end
  local found = call('PUBSUB', 'NUMSUB', unpack(channels))
  for g = 1, #groups do counts[g] = found[2 * g] end
  return counts
end

-- Where the next item begins in what is read of a group, below 0 at its end.
local following

local function act_on(act, next_at, ...)
  following = next_at
  return act(...)
end

-- Runs act(...) for every item of groups, each {base, epoch, first, items} of one partition. `items` is itself MessagePack, of
-- which the first begins at `first`: an array of `width` values each, which are read one item at a time, since a table of them
-- would cost more than they do. KEYS: for each group its owner. Returns the time, and for each group what was returned for
-- its items, nothing when it is overtaken.
local function answers_of(groups, width, act)
  local replies, listeners = {}, listeners_of(groups)
  for g, group in ipairs(groups) do
    local answers, items, count = {}, group[4], 0
    enter(group[1], group[2], KEYS[g], not listeners or listeners[g] > 0)
    if not overtaken() then
      following = group[3]
      while following > 0 do
        count = count + 1
        -- The first byte says that an array begins.
        answers[count] = act_on(act, unpack_limit(items, width, following + 1))
      end
      conclude()
    end
    replies[g] = answers
  end
  return cmsgpack.pack({time, replies})
end
