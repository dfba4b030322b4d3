--!include trimming
--!include firings
--!include pausing
--!include backfilling
-- Writes chain states, and ends runs.
local TRIMMED, NOTHING = 20, {}
local MANY, TOGETHER = 100, 10
-- What follows a write: flags that are added up, as in domain/chain_state.py.
local ADVANCE_QUEUE, SETTLE_OUTBOX, PUBLISH_END, RETURN_END = 1, 2, 4, 8

-- Whether planned times of any flow wait, for each partition by its `base`.
local queues
fresh(function() queues = {} end)

-- Whether a planned time of a flow waits.
local function has_queue(flow)
  if queues[base] == nil then queues[base] = call('EXISTS', base .. 'queued') == 1 end
  return queues[base] and call('EXISTS', flow .. ':queued') == 1
end

-- The flows of which runs have ended, by id: {status, next_execution, pause_after, logged, last_cycle, how many have
-- ended, and of the last one `keep` and `flow_status`}. What follows for a flow is done once for all of its runs.
local ended = {}
-- What has yet to be written to the index of cycles of the flow `indexed`: `entered` values of `entries`. The table is
-- kept, since growing a new one would be slower.
local indexed, entries, entered = nil, {}, 0
fresh(function()
  if next(ended) then ended = {} end
  entered = 0
end)

local function write_index()
  if entered == 0 then return end
  local added = redis.pcall('ZADD', flow_key(indexed) .. ':cycles', unpack(entries, 1, entered))
  if type(added) == 'table' then note_unreadable(indexed, added) end
  entered = 0
end

-- Enters an ended run in the index of its flow, together with others of that flow that end next.
local function enter_in_index(flow_id, cycle, run, name)
  if flow_id ~= indexed then
    write_index()
    indexed = flow_id
  end
  entries[entered + 1], entries[entered + 2] = cycle * RUNS + run, name
  entered = entered + 2
end

-- Ends a run; returns what follows, as a sum of the flags above.
local function end_run(flow, key, flow_id, name, cycle, run, run_id, keep, keep_for, ending, flow_status, backfill,
  parent, logged)
  local subject, follow_up = flow_id .. ':' .. name, 0
  local known = ended[flow_id]
    or call('HMGET', flow, 'status', 'next_execution', 'pause_after', 'logged', 'last_cycle')
  known[6], known[7], known[8] = (known[6] or 0) + 1, keep, flow_status
  ended[flow_id] = known
  call('PEXPIRE', key, keep_for)
  -- Earlier runs of a cycle stay as long as its latest run.
  for before = run - 1, 0, -1 do
    call('PEXPIRE', flow .. ':cycle:' .. digits('%d:%d', cycle, before), keep_for)
  end
  if logged or known[4] and tonumber(known[4]) >= cycle then
    call('PEXPIRE', logs_key(flow_id, digits('%d', cycle)), keep_for)
  end
  enter_in_index(flow_id, cycle, run, name)
  close(subject)
  if args.publish_ends then
    follow_up = PUBLISH_END
    call('ZADD', base .. 'ends', time, subject .. ' ' .. run_id .. ' ' .. ending)
    call('ZREMRANGEBYRANK', base .. 'ends', 0, -args.max_ends - 1)
  end
  if parent then
    follow_up = follow_up + RETURN_END
    call('ZREM', flow .. ':filling', name)
    call('ZADD', base .. 'returns', time, subject .. ' ' .. run_id .. ' ' .. ending)
    call('ZREMRANGEBYRANK', base .. 'returns', 0, -args.max_ends - 1)
  end
  local most, of_backfill = tonumber(known[3] or 0), backfill > 0
  if most > 0 and run == 0 and not of_backfill and not parent
    and count_failures(flow, flow_id, known[1], most, digits('%d', cycle), ending) then
    follow_up, known[1] = follow_up + SETTLE_OUTBOX, 'paused'
  end
  if of_backfill then backfills.ended(flow, flow_id, backfill, name, ending) end
  local queue = known[1] == 'running' and has_queue(flow)
  if queue then call('ZADD', base .. 'queued', 0, flow_id) end
  return (of_backfill or queue) and follow_up + ADVANCE_QUEUE or follow_up
end

-- Trims a flow, and ends it if it is over, after runs of it have ended.
local function follow_up_on_flow(flow_id, known)
  local flow, status, next_at, _, _, last_cycle, count, keep, flow_status = flow_key(flow_id), unpack(known, 1, 8)
  -- If many cycles are kept, surplus ones stay until several can be removed together.
  trim(flow_id, keep, tonumber(last_cycle or 0), keep < MANY and 1 or TOGETHER, count * TRIMMED)
  if status == 'paused' then next_at = call('HGET', flow, 'paused_next') end
  local over = end_flow_that_is_over(flow, status, tonumber(next_at), flow_status)
  if over and status == 'paused' then backfills.look_again_at_all(flow, flow_id) end
end

local function update(flow_id, name, cycle, run, run_id, start, expected, fields, check_in, ending, keep, keep_for,
  flow_status, rare)
  local flow = flow_key(flow_id)
  local key = flow .. ':cycle:' .. name
  local known = call('HMGET', key, 'run_id', 'version', 'status')
  if known[1] ~= run_id then return {'missing', 0} end
  local version = tonumber(known[2] or 1)
  if known[3] ~= 'running' then return {'terminal', version} end
  if version ~= expected then return {'conflict', version} end
  version = version + 1
  local backfill, parent, large, level, text
  if rare then backfill, parent, large, level, text = unpack(rare) end
  if large then call('HSET', key, unpack(large)) end
  if text then append_line(flow_id, digits('%d', cycle), level, 'scheduler', text) end
  if ending ~= '' then
    -- A run that was finished ahead of its planned time does not end before that time.
    local at = math.max(time, start)
    call('HSET', key, 'version', version, 'status', ending, 'end_time', at, unpack(fields))
    if large then
      publish_change(flow_id, cycle, run, version, NOTHING)
    else
      publish_change(flow_id, cycle, run, version, fields, ending, at)
    end
    return end_run(flow, key, flow_id, name, cycle, run, run_id, keep, keep_for, ending, flow_status, backfill or 0,
      parent, text)
  end
  call('HSET', key, 'version', version, unpack(fields))
  publish_change(flow_id, cycle, run, version, large and NOTHING or fields)
  if check_in >= 0 then call('ZADD', base .. 'open', 'XX', time + check_in, flow_id .. ':' .. name) end
  return 0
end

-- Does what follows for the flows of a group.
local function follow_up_on_flows()
  write_index()
  for flow_id, known in pairs(ended) do
    local readable, problem = pcall(follow_up_on_flow, flow_id, known)
    if not readable then note_unreadable(flow_id, problem) end
  end
  if next(ended) then ended = {} end
end
