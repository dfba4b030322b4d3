-- Tidies some flows of a partition: ended cycles beyond what a flow keeps go, and so do entries of its index of cycles whose
-- records have expired; and flows whose window for events has ended are over. A flow with more to do than one script does
-- comes again.
-- KEYS: 1 owner. args: base, epoch, now, after (flow id to go on behind, "" for the first), flows (how many), most (removed
-- of each), settle (ms for which what ended stays).
-- Returns {after (flow id to go on behind, if not done), done (all flows are through, or it is overtaken), trimmed, forgotten}.
--!include trimming
--!include firings
local trimmed, forgotten = 0, 0

-- Expired ones stand at the lower end: the search ends at the first that is on record.
local function forget_expired(flow_id, most)
  local cycles = flow_key(flow_id) .. ':cycles'
  local gone = {}
  for _, name in ipairs(call('ZRANGE', cycles, 0, most - 1)) do
    local cycle, run = string.match(name, '^(%d+):(%d+)$')
    if call('EXISTS', run_key(flow_id, cycle, run)) == 1 then break end
    gone[#gone + 1] = name
  end
  if #gone > 0 then call('ZREM', cycles, unpack(gone)) end
  return #gone
end

-- `next_at` is minus the end of the window of a flow that begins on events, -1 where there is none.
local function end_window(flow_id, status, next_at)
  if next_at >= -1 or time < -next_at or status ~= 'running' then return end
  call('HSET', flow_key(flow_id), 'next_execution', 0)
  call('ZADD', base .. 'outbox', time, flow_id)
  end_flow_that_is_over(flow_key(flow_id), status, 0, 'completed')
end

local function tidy()
  if overtaken() then return '', true end
  local after = args.after
  local ids = call('ZRANGE', base .. 'flows', after == '' and '-' or '(' .. after, '+', 'BYLEX', 'LIMIT', 0, args.flows)
  for _, flow_id in ipairs(ids) do
    local gone = forget_expired(flow_id, args.most)
    local known = call('HMGET', flow_key(flow_id), 'keep_cycles', 'status', 'next_execution', 'last_cycle')
    end_window(flow_id, known[2], tonumber(known[3] or 0))
    local dropped = trim(flow_id, tonumber(known[1] or 1), tonumber(known[4] or 0), 1, args.most)
    trimmed, forgotten = trimmed + dropped, forgotten + gone
    if gone == args.most or dropped == args.most then return after, false end
    after = flow_id
  end
  local done = #ids < args.flows
  return done and '' or after, done
end

local after, done = tidy()
return cmsgpack.pack({after, done, trimmed, forgotten})
