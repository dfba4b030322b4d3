--!include time
-- Shared by the scripts for sessions. args: now_ms, base (the beginning of every key of the partition), channel,
-- remembered_ms. A row is {digest, user_id, kind, lifetime, idle, label, created_at, last_activity}.
local FIELDS = {'digest', 'user_id', 'kind', 'lifetime', 'idle', 'label', 'created_at', 'last_activity'}
local NUMBERS, KINDS = {4, 5, 7, 8}, {login = true, token = true}

-- Formats a time as text: Lua itself would write a large number with an exponent.
local function text(number)
  return string.format('%.0f', number)
end

local function session_key(digest)
  return args.base .. 'session:' .. digest
end

local function sessions_key(user_id)
  return args.base .. 'sessions:' .. user_id
end

local function user_key(user_id) return args.base .. 'user:' .. user_id end

-- Returns a user's role, nil when the user is not on record: a key of another type is no record.
local function role_of(user_id)
  local role = redis.pcall('HGET', user_key(user_id), 'role')
  return type(role) == 'string' and plain(role) or nil
end

local function expires_at(row)
  local ends = row[7] + row[4]
  if row[5] > 0 then ends = math.min(ends, row[8] + row[5]) end
  return ends
end

-- Returns text as a whole number that Lua holds exactly, nil if it is none.
local function whole(text)
  local number = tonumber(text)
  return number and number % 1 == 0 and math.abs(number) < 2 ^ 53 and number or nil
end

-- Returns a session's row, nil when there is none. A record that lacks a field, or has one that nobody wrote, is none:
-- its user must not be kept from the others.
local function row_of(digest)
  local row = redis.pcall('HMGET', session_key(digest), unpack(FIELDS))
  for _, place in ipairs(NUMBERS) do row[place] = whole(row[place]) end
  for place = 1, #FIELDS do
    if not row[place] then return nil end
  end
  row[1], row[2], row[6] = plain(row[1]), plain(row[2]), plain(row[6])
  return KINDS[row[3]] and row
end

local function is_forgotten(row)
  return expires_at(row) + args.remembered_ms <= time
end

local function session(digest)
  local row = row_of(digest)
  return row and not is_forgotten(row) and row or nil
end

-- Returns why a token is refused; or "", its session and its user's role.
local function recognized(digest)
  local row = session(digest)
  local role = row and role_of(row[2])
  if not role then return 'unknown' end
  if expires_at(row) <= time then return 'expired' end
  return '', row, role
end

-- Adds a session to its user's index, and keeps the index for as long as the session may live.
local function index_session(row)
  local index = sessions_key(row[2])
  local added = redis.pcall('ZADD', index, text(row[7]), row[1])
  if added == 0 then return end
  if added ~= 1 then
    -- A key of another type leads to no session, and would keep its user from calling.
    redis.call('DEL', index)
    redis.call('ZADD', index, text(row[7]), row[1])
  end
  if redis.call('PTTL', index) < row[4] + args.remembered_ms then
    redis.call('PEXPIRE', index, text(row[4] + args.remembered_ms))
  end
end

local function save(row)
  local key = session_key(row[1])
  redis.call('HSET', key, 'digest', row[1], 'user_id', row[2], 'kind', row[3], 'lifetime', text(row[4]),
    'idle', text(row[5]), 'label', row[6], 'created_at', text(row[7]), 'last_activity', text(row[8]))
  redis.call('PEXPIRE', key, text(expires_at(row) + args.remembered_ms - time))
  index_session(row)
end

local function remove(user_id, digest)
  redis.call('ZREM', sessions_key(user_id), digest)
  return redis.call('DEL', session_key(digest))
end

-- Returns a user's sessions that have not ended, the digests of those that have, both oldest first, and the digests of
-- index entries without a session.
local function sessions_of(user_id)
  local open, ended, gone = {}, {}, {}
  for _, digest in ipairs(redis.pcall('ZRANGE', sessions_key(user_id), 0, -1)) do
    local row = session(digest)
    if not row then
      gone[#gone + 1] = digest
    elseif expires_at(row) > time then
      open[#open + 1] = row
    else
      ended[#ended + 1] = digest
    end
  end
  return open, ended, gone
end

-- Adds a user to the index, which leads to everything else of theirs.
local function index_user(user_id)
  redis.call('ZADD', args.base .. 'users', 0, user_id)
end

local function set_role(user_id, role)
  local key = user_key(user_id)
  if type(redis.pcall('HLEN', key)) ~= 'number' then redis.call('DEL', key) end
  redis.call('HSET', key, 'role', role, 'updated_at', text(time))
end

local function publish_change(user_id)
  redis.call('PUBLISH', args.channel, user_id)
end
