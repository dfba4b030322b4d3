-- Keys, fencing and announcements of partitions of flows. Uses args: now, and base (key prefix with its tag), epoch (the
-- caller's as owner, 0 when it does not act as one), KEYS: 1 owner, unless it works in groups: then `answers_of` does it.
-- `digits` is how a whole number is written, which `..` takes twice as long for.
local call, digits, unpack_limit = redis.call, string.format, cmsgpack.unpack_limit
-- `<flow>:cycles` holds each run at the number of its cycle times the runs that one may have, and its own; above all of these
-- those that are asked to stop, and above those the ones that go on: STOPPING and OPEN more.
local RUNS, STOPPING, OPEN = 1024, 2 ^ 45, 2 ^ 46
local time, base, epoch, owner, heard, changes
-- What conclude() writes, as many of each as these say: the tables stay, since growing new ones costs more than they hold.
local checks, closed, checked, closing = {}, {}, 0, 0

local function enter(its_base, its_epoch, its_owner, is_heard)
  base, epoch, owner, heard, changes, checked, closing = its_base, its_epoch, its_owner, is_heard, nil, 0, 0
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
  if not heard then return end
  changes = changes or {}
  changes[#changes + 1] = {flow_id, cycle, run, version, fields, ending, at}
end

-- When an open run, `<flow>:<cycle>:<run>`, is to be looked at next.
local function check_at(at, run)
  checks[checked + 1], checks[checked + 2] = at, run
  checked = checked + 2
end

-- Nobody looks at a run any more.
local function close(run)
  closing = closing + 1
  closed[closing] = run
end

-- Writes what was to be told and when runs are to be looked at.
local function conclude()
  if checked > 0 then call('ZADD', base .. 'open', unpack(checks, 1, checked)) end
  if closing > 0 then call('ZREM', base .. 'open', unpack(closed, 1, closing)) end
  if changes then call('PUBLISH', base .. 'changes', cmsgpack.pack(changes)) end
end

-- Each channel of a group and how many listen to it; nil on a cluster, whose nodes know of their own listeners only.
local function listeners_of(groups)
  if args.cluster then return nil end
  local channels = {}
  for g = 1, #KEYS do channels[g] = groups[4 * g - 3] .. 'changes' end
  return call('PUBSUB', 'NUMSUB', unpack(channels))
end

-- Where the next item begins in what is read of a group, below 0 at its end.
local following

local function act_on(act, next_at, ...)
  following = next_at
  return act(...)
end

-- Runs act(...) for every item of groups: base, epoch, first, items of each, one partition's. `items` is itself MessagePack, of
-- which the first begins at `first`: an array of `width` values each, which are read one item at a time, since a table of them
-- would cost more than they do. KEYS: for each group its owner. Returns the time, and for each group what was returned for
-- its items, nothing when it is overtaken.
local function answers_of(groups, width, act)
  local replies, listeners = {}, listeners_of(groups)
  for g = 1, #KEYS do
    local at = 4 * g
    local answers, items, count = {}, groups[at], 0
    enter(groups[at - 3], groups[at - 2], KEYS[g], not listeners or listeners[2 * g] > 0)
    if not overtaken() then
      following = groups[at - 1]
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
