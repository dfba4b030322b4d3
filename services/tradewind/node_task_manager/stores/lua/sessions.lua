--!include records
-- Sessions of workers. Their numbers rise with time, so a store that has lost its last second gives none out again, and
-- knows a session that it has lost as a later one.
local sessions = {}
do
  local function key_of(worker) return base .. 'worker_session:' .. worker end

  -- Begins the next session of a worker, and returns its number.
  function sessions.open(worker)
    local session = math.max(tonumber(call('GET', key_of(worker)) or 0) + 1, time)
    call('SET', key_of(worker), string.format('%.0f', session), 'PX', limits.run_retention_ms)
    return session
  end

  -- Whether no later session of a worker is known; 0 stands for any.
  function sessions.is_latest(worker, session)
    return session == 0 or session >= tonumber(call('GET', key_of(worker)) or 0)
  end

  function sessions.keep(worker) call('PEXPIRE', key_of(worker), limits.run_retention_ms) end
end
