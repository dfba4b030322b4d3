-- Tidies some flows of a partition: removes ended cycles beyond those that a flow keeps, and entries of its index of
-- cycles whose records have expired; and ends flows whose window for events has ended. A flow with more to remove than
-- one script may is continued by the next call.
-- KEYS: 1 owner. args: base, epoch, now, after (flow id to go on after, "" for the first), flows (how many), most
-- (removed of each), settle (ms for which an ended run stays).
-- Returns {after (flow id to go on after, if not done), done (no flows are left, or the caller is overtaken), trimmed,
-- forgotten, unreadable (flows that were left as they are, each with why)}.
--!include trimming
--!include firings
local trimmed, forgotten = 0, 0

-- Removes the entries of expired runs, and those that name no run. Returns how many. They are at the lower end of the
-- index: stop at the first run that is on record.
local function forget_expired(flow_id, most)
  local cycles = flow_key(flow_id) .. ':cycles'
  local names, others = oldest_runs(cycles, most)
  local gone = {}
  for _, name in ipairs(names) do
    local cycle, run = string.match(name, '^(%d+):(%d+)$')
    if call('EXISTS', run_key(flow_id, cycle, run)) == 1 then break end
    gone[#gone + 1] = name
  end
  if #gone > 0 then call('ZREM', cycles, unpack(gone)) end
  return #gone + others
end

-- Ends the schedule of a flow whose window for events has ended. `next_at` is minus the window's end, -1 without one.
local function end_window(flow_id, status, next_at)
  if next_at >= -1 or time < -next_at or status ~= 'running' then return end
  call('HSET', flow_key(flow_id), 'next_execution', 0)
  call('ZADD', base .. 'outbox', time, flow_id)
  end_flow_that_is_over(flow_key(flow_id), status, 0, 'completed')
end

-- Tidies a flow; returns whether there is more to remove.
local function tidy_flow(flow_id)
  local gone = forget_expired(flow_id, args.most)
  local known = call('HMGET', flow_key(flow_id), 'keep_cycles', 'status', 'next_execution', 'last_cycle')
  end_window(flow_id, known[2], tonumber(known[3] or 0))
  local dropped, more = trim(flow_id, tonumber(known[1] or 1), tonumber(known[4] or 0), 1, args.most)
  trimmed, forgotten = trimmed + dropped, forgotten + gone
  return gone == args.most or more
end

local function tidy()
  if overtaken() then return '', true end
  local after = args.after
  local ids = call('ZRANGE', base .. 'flows', after == '' and '-' or '(' .. after, '+', 'BYLEX', 'LIMIT', 0, args.flows)
  for _, flow_id in ipairs(ids) do
    local readable, more = pcall(tidy_flow, flow_id)
    if not readable then
      note_unreadable(flow_id, more)
    elseif more then
      return after, false
    end
    after = flow_id
  end
  local done = #ids < args.flows
  return done and '' or after, done
end

local after, done = tidy()
return cmsgpack.pack({after, done, trimmed, forgotten, unreadable})
