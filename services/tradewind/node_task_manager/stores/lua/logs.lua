--!include clocks
--!include notifications
-- Log lines of cycles, tasks and batches.
local logs = {}
do
  local call = index_call
  local max_lines = {}
  fresh(function() if next(max_lines) then max_lines = {} end end)

  -- Returns how many lines of a cycle are kept, 0 if too many newer cycles have lines. Computed once per script.
  local function lines_of(flow, cycle)
    local streams, index = base .. 'logs:' .. flow .. ':', base .. 'flow_logs:' .. flow
    local known = max_lines[streams .. cycle]
    if known then return known end
    if call('ZADD', index, 'NX', cycle, cycle) == 1 then
      call('PEXPIRE', index, limits.run_retention_ms)
      for _, gone in ipairs(call('ZRANGE', index, 0, -1 - limits.logged_cycles)) do
        call('UNLINK', streams .. gone)
        call('ZREM', index, gone)
      end
      local older = call('ZRANGE', index, -1 - limits.log_cycles, -1 - limits.log_cycles)[1]
      if older then call('XTRIM', streams .. older, 'MAXLEN', limits.older_log_lines) end
    end
    local newer = call('ZREVRANK', index, cycle)
    local most = not newer and 0 or newer < limits.log_cycles and limits.log_lines or limits.older_log_lines
    max_lines[streams .. cycle] = most
    return most
  end

  -- Adds a line {attempt, level, source, message} about a node task, said at `at`.
  function logs.add(id, line, at)
    local flow, cycle, run, node_id = string.match(id, '^(.-):(.-):(.-):(.+)$')
    local most = flow and lines_of(flow, cycle) or limits.log_lines
    if most == 0 then return end
    local stream = base .. 'logs:' .. (flow and flow .. ':' .. cycle or run_of(id))
    local added_to = add_to_stream(stream, 'MAXLEN', '~', most, '*', 'l', cmsgpack.pack({cycle = tonumber(cycle) or 0,
      run = tonumber(run) or 0, node_id = node_id or string.match(id, '^batch:[^:]+:(.+)$') or '', level = line.level,
      source = line.source, message = line.message, at = at, attempt = line.attempt}))
    if added_to then call('PEXPIRE', stream, flow and limits.run_retention_ms or limits.retention_ms) end
  end

  -- Adds that another attempt follows the latest one, `wait` ms after its failure.
  function logs.add_retry(record, wait)
    local attempt = tonumber(record.attempt) or 0
    logs.add(record.id, {attempt = attempt, level = 'INFO', source = 'system',
      message = 'attempt ' .. attempt + 1 .. ' follows in ' .. clocks.duration_text(wait)}, time)
  end

  -- Adds the error of an attempt, or of a wait for one, that no worker reports.
  function logs.add_error(record, error)
    logs.add(record.id, {attempt = tonumber(record.attempt) or 0, level = 'ERROR', source = 'system',
      message = error.code .. ': ' .. notices.typed_message(error)}, time)
  end
end
