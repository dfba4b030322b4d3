--!include sessions
--!include findings
--!include naming_call
-- Looks for broken invariants among some users of a partition, and mends them on a second pass. KEYS: the index of
-- users. args: as sessions.lua, and after (the user to begin after, "" at first), count (users at most), roles,
-- endpoints (whose calls are counted), dates (the days for which calls may be counted), longest_ms (the longest period
-- of a rate), recheck (names of findings to check a second time, or nil), mend.
-- Returns {how many it checked, findings {check, subject, problem, mended}, the last user checked, "" at the end}.
local MAX_KEYS = 500
local checked, keys, roles = 0, 0, {}
for _, role in ipairs(args.roles) do roles[role] = true end

local function set_ttl(key, length) return function() redis.call('PEXPIRE', key, text(length)) end end

-- Checks that a counter expires at all.
local function examine_counter(key, subject, length)
  keys = keys + 1
  local left = redis.call('PTTL', key)
  if left ~= -2 then checked = checked + 1 end
  if left == -1 then found('no-time-to-live', subject, 'it would stay for ever', set_ttl(key, length)) end
end

-- Examines a session; returns how many ms its record will stay.
local function examine_session(user_id, digest, made_at)
  checked, keys = checked + 1, keys + 1
  local key, row = session_key(digest), row_of(digest)
  local name = user_id .. ' ' .. string.sub(digest, 1, 20)
  local function remove_session() remove(user_id, digest) end
  if not row then
    -- A record outlives its session by remembered_ms. For an older entry, nobody can tell whether it ended rightly.
    if made_at + args.remembered_ms > time then
      found('index-without-record', 'sessions ' .. name, 'no such session is on record', remove_session)
    end
    return 0
  end
  local left = redis.call('PTTL', key)
  if left >= 0 then return left end
  if is_forgotten(row) then
    found('expired-session-left', name, 'it ended long ago, but its record would stay for ever', remove_session)
    return 0
  end
  local length = expires_at(row) + args.remembered_ms - time
  found('no-time-to-live', 'session ' .. name, 'it would stay for ever', set_ttl(key, length))
  return length
end

local function examine_sessions(user_id)
  local index, longest = sessions_key(user_id), 0
  local entries = naming_call('ZRANGE', index, 0, -1, 'WITHSCORES')
  for at = 1, #entries, 2 do
    longest = math.max(longest, examine_session(user_id, entries[at], tonumber(entries[at + 1])))
  end
  local left = redis.call('PTTL', index)
  if left == -1 then
    found('no-time-to-live', 'sessions ' .. user_id, 'the list of sessions would stay for ever',
      set_ttl(index, math.max(longest, args.remembered_ms)))
  elseif left + args.remembered_ms < longest then
    found('sessions-forgotten', user_id,
      'the list of sessions would expire before they end, and then nobody could revoke them',
      set_ttl(index, longest))
  end
end

local function examine_user(id)
  checked, keys = checked + 1, keys + 1
  local role = naming_call('HGET', user_key(id), 'role')
  if not role then
    found('index-without-record', 'users ' .. id, 'no such user is on record', function()
      for _, digest in ipairs(redis.pcall('ZRANGE', sessions_key(id), 0, -1)) do remove(id, digest) end
      redis.call('ZREM', KEYS[1], id)
      publish_change(id)
    end)
  elseif not roles[role] then
    found('role-unknown', id, 'there is no role "' .. role .. '": set the role again (SetUser)')
  end
  examine_sessions(id)
  for _, endpoint in ipairs(args.endpoints) do
    local name = id .. ':' .. endpoint
    examine_counter(args.base .. 'rate_limit:' .. name, 'rate_limit ' .. name, args.longest_ms)
  end
  for _, date in ipairs(args.dates) do
    local name = id .. ':' .. date
    examine_counter(args.base .. 'quota:' .. name, 'quota ' .. name, 2 * args.longest_ms)
  end
end

local from = args.after == '' and '-' or '(' .. args.after
local ids, last = {}, ''
examined(KEYS[1], function() ids = redis.call('ZRANGEBYLEX', KEYS[1], from, '+', 'LIMIT', 0, args.count) end)
for at, id in ipairs(ids) do
  examined('users ' .. id, examine_user, id)
  if keys >= MAX_KEYS or (at == #ids and at == args.count) then
    last = id
    break
  end
end
return cmsgpack.pack({checked, findings, last})
