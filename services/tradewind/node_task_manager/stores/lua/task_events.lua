--!include records
-- Events of ad-hoc tasks, and of watched node tasks of flows, in a stream for each that holds the newest.
-- Uses args, base, limits, stamp.
local task_events = {}
do
  -- Whether events of a flow's node task are kept: its component lists the watched ones, by their ids within the run.
  function task_events.watched(comp, id)
    return comp.watched and string.find(comp.watched, ' ' .. string.sub(id, #comp.run + 2) .. ' ', 1, true) ~= nil
  end

  function task_events.add(id, event, final)
    local key = base .. 'task_events:' .. id
    -- A position in the stream is the time of the script that wrote the entry, and a number within that time.
    local at = args.now == 0 and '*' or stamp .. '-*'
    local added_to = add_to_stream(key, 'MAXLEN', limits.task_events, at, 'e', cmsgpack.pack(event))
    if added_to and final then
      -- A growing stream reserves 4 KiB; a copy of it takes no more than it needs.
      local copy = key .. ':copy'
      call('COPY', key, copy)
      call('RENAME', copy, key)
      call('PEXPIRE', key, limits.retention_ms)
    end
  end
end
