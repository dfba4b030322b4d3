-- What users are to know, each user's in a stream of its own that holds the newest. Uses args, base, limits, time, notices.
do
  local BRIEF, notified = 500, {}

  -- The beginning of a text of a kind that may be long; no character of it is cut in two.
  function notices.brief(text)
    if not text or #text <= BRIEF then return text end
    return (string.gsub(string.sub(text, 1, BRIEF), '[\192-\255][\128-\191]*$', ''))
  end

  function notices.notify(user, fact)
    local key = base .. 'notifications:' .. user
    fact.at = time
    call('XADD', key, 'MAXLEN', limits.notifications, notices.position, 'n', cmsgpack.pack(fact))
    call('PEXPIRE', key, limits.notification_retention)
    notified[user] = true
  end

  -- Whether something named so is to be told to a user, who hears of it once within so many ms.
  function notices.once(user, name, ms)
    local key = base .. 'notified:' .. user .. ':' .. name
    local till = call('GET', key)
    if till and tonumber(till) > time then return false end
    call('SET', key, string.format('%.0f', time + ms), 'PX', ms)
    return true
  end

  function notices.publish()
    for user in pairs(notified) do call('PUBLISH', base .. 'wake', 'n:' .. user) end
  end
end
