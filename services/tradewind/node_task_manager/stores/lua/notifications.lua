--!include records
-- Notifications of users, in a stream for each user that holds the newest. Uses args, base, limits, time, stamp.
local notices = {}
do
  local BRIEF = 500
  local notified = {}
  fresh(function() if next(notified) then notified = {} end end)

  -- Returns the beginning of a text that may be long, without cutting a character in two.
  function notices.brief(text)
    if not text or #text <= BRIEF then return text end
    return (string.gsub(string.sub(text, 1, BRIEF), '[\192-\255][\128-\191]*$', ''))
  end

  -- Returns an error's message after its type, if it has one.
  function notices.typed_message(error)
    return (error.type or '') ~= '' and error.type .. ': ' .. error.message or error.message
  end

  function notices.brief_error(error) return notices.brief(notices.typed_message(error)) end

  function notices.notify(user, fact)
    local key, at = base .. 'notifications:' .. user, args.now == 0 and '*' or stamp .. '-*'
    fact.at = time
    if add_to_stream(key, 'MAXLEN', limits.notifications, at, 'n', cmsgpack.pack(fact)) then
      call('PEXPIRE', key, limits.notification_retention_ms)
      notified[user] = true
    end
  end

  -- Whether to notify a user of the thing `name`: once within `ms`.
  function notices.once(user, name, ms)
    local key = base .. 'notified:' .. user .. ':' .. name
    local till = index_call('GET', key)
    if till and tonumber(till) > time then return false end
    call('SET', key, string.format('%.0f', time + ms), 'PX', ms)
    return true
  end

  -- Notifies the user that a component of a cycle failed, unless somebody stopped it; for each flow, once a minute.
  function notices.component_failed(comp)
    local stop, QUIET_MS = comp.stop and cmsgpack.unpack(comp.stop), 60000
    if stop and stop.by ~= 'system' then return end
    if notices.once(comp.user_id, 'failed:' .. string.match(comp.run, '^[^:]+'), QUIET_MS) then
      notices.notify(comp.user_id, {kind = 'cycle_failed', subject = comp.run, total = comp.nodes, failed = comp.failed,
        message = stop and notices.brief(stop.reason) or nil})
    end
  end

  function notices.publish()
    for user in pairs(notified) do call('PUBLISH', base .. 'wake', 'n:' .. user) end
  end
end
