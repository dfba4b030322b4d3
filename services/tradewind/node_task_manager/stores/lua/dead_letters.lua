--!include release
-- The history of attempts that did not succeed, kept with the node task; and dead letters: node tasks that were given
-- up.
local dead_letters = {}
do
  local HISTORY, DEAD_LETTERS = 20, 10000
  local buried = {}
  fresh(function() if next(buried) then buried = {} end end)

  function dead_letters.add_to_history(record, how)
    local past = read_rest(record).history and cmsgpack.unpack(record.history) or {}
    past[#past + 1] = {attempt = record.attempt or 0, worker_id = record.worker_id or '',
      began = tonumber(record.started_at or 0), ended = time, how = how}
    if #past > HISTORY then table.remove(past, 1) end
    set(record, 'history', cmsgpack.pack(past))
  end

  -- Notifies the user: for a batch of the first dead letter, for a flow once a minute; an ad-hoc task's end does it
  -- itself.
  local function notify_user(record, comp, error)
    local QUIET_MS = 60000
    record.given_up = true
    if record.id == comp.run then return end
    local flow = string.match(comp.run, '^([^:]+):[^:]+:[^:]+$')
    if notices.once(comp.user_id, 'given_up:' .. (flow or comp.run), flow and QUIET_MS or limits.retention_ms) then
      notices.notify(comp.user_id, {kind = 'dead_letter', subject = record.id,
        node_type = node(comp.plan, record.index).type, code = error.code, message = notices.brief_error(error)})
    end
  end

  function dead_letters.bury(record, comp, error)
    local key = 'dead_letters:' .. comp.user_id
    put(key, record.id, time)
    buried[key] = true
    notify_user(record, comp, error)
  end

  -- Keeps the newest dead letters of each user, for as long as their runs may stay.
  function dead_letters.write()
    for key in pairs(buried) do
      call('ZREMRANGEBYSCORE', base .. key, '-inf', time - limits.run_retention_ms)
      call('ZREMRANGEBYRANK', base .. key, 0, -1 - DEAD_LETTERS)
      call('PEXPIRE', base .. key, limits.run_retention_ms)
      call('ZADD', base .. 'to_clean', 'NX', time + limits.retention_ms, key)
    end
  end
end
