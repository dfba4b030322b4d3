--!include records
-- Events of ad-hoc tasks, and of node tasks of flows that somebody watches, each in a stream of its own that holds the newest.
-- Uses args, base, limits, stamp.
local task_events = {}
do
  -- Whether events of a node task of a flow are kept: its component names all that somebody has watched, within their run.
  function task_events.watched(comp, id)
    return comp.watched and string.find(comp.watched, ' ' .. string.sub(id, #comp.run + 2) .. ' ', 1, true) ~= nil
  end

  function task_events.add(id, event, over)
    local key = base .. 'task_events:' .. id
    -- A position in the stream is the time of the script that wrote there, and a number within it.
    call('XADD', key, 'MAXLEN', limits.task_events, args.now == 0 and '*' or stamp .. '-*', 'e', cmsgpack.pack(event))
    if over then
      -- A stream that grows has 4 KiB to grow into; its copy is as large as it must be.
      local copy = key .. ':copy'
      call('COPY', key, copy)
      call('RENAME', copy, key)
      call('PEXPIRE', key, limits.retention)
    end
  end
end
