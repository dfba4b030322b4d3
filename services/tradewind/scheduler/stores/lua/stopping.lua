-- Marks open runs of a flow as stopping.
--!include partition
local STOPS = 500

-- Marks up to 500 runs that nobody has asked to stop yet; `blocking_only` leaves out reruns, runs of backfills and
-- those for nodes of other flows. Returns {cycle, run} of each, and whether there are more.
local function mark_stopping(flow_id, by, reason, source, blocking_only)
  local cycles = flow_key(flow_id) .. ':cycles'
  local marked, members = {}, call('ZRANGEBYSCORE', cycles, OPEN, '+inf', 'LIMIT', 0, blocking_only and -1 or STOPS + 1)
  for _, name in ipairs(members) do
    if #marked == STOPS then break end
    local cycle, run = string.match(name, '^(%d+):(%d+)$')
    -- The doctor removes what names no run.
    local skipped = not cycle or blocking_only and (run ~= '0' or call('ZSCORE', flow_key(flow_id) .. ':filling', name))
    local key = not skipped and run_key(flow_id, cycle, run)
    local known = key and call('HMGET', key, 'run_id', 'version', 'stop_at')
    if known and known[1] and not known[3] then
      local version = tonumber(known[2] or 1) + 1
      local fields = {'stop_by', by, 'stop_reason', reason, 'stop_at', time}
      call('HSET', key, 'version', version, unpack(fields))
      publish_change(flow_id, tonumber(cycle), tonumber(run), version, fields)
      append_line(flow_id, cycle, 'WARNING', source, 'Stopping: ' .. reason)
      schedule_check(time, flow_id .. ':' .. name)
      marked[#marked + 1] = {tonumber(cycle), tonumber(run)}
    end
    if not skipped then call('ZADD', cycles, STOPPING + cycle * RUNS + run, name) end
  end
  return marked, #members > STOPS
end
