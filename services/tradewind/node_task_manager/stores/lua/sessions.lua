--!include records
-- Sessions of workers. Their numbers rise with time, so a store that has lost its last second gives none out again, and
-- knows a session that it has lost as a later one. What somebody has put in place of one counts as lost.
local sessions = {}
do
  local function key_of(worker) return base .. 'worker_session:' .. worker end
  local function process_key_of(worker) return base .. 'worker_incarnation:' .. worker end

  local function latest(worker) return tonumber(redis.pcall('GET', key_of(worker))) or 0 end

  -- Begins the next session of a worker, and returns its number.
  function sessions.open(worker)
    local session = math.max(latest(worker) + 1, time)
    call('SET', key_of(worker), string.format('%.0f', session), 'PX', limits.run_retention_ms)
    return session
  end

  -- Whether no later session of a worker is known; 0 stands for any.
  function sessions.is_latest(worker, session) return session == 0 or session >= latest(worker) end

  -- Keeps the session of a worker, and its process, on record.
  function sessions.keep(worker)
    call('PEXPIRE', key_of(worker), limits.run_retention_ms)
    call('PEXPIRE', process_key_of(worker), limits.run_retention_ms)
  end

  -- Returns which process was behind a worker last, nil when that is not known.
  function sessions.process_of(worker)
    local process = redis.pcall('GET', process_key_of(worker))
    return type(process) == 'string' and process or nil
  end

  function sessions.note_process(worker, incarnation)
    call('SET', process_key_of(worker), incarnation, 'PX', limits.run_retention_ms)
  end
end
