-- Shared by the scripts of the registry. KEYS[1..6] are the indexes in the order of keys.py; args: now_ms,
-- time_to_live, retention, and `workers` and `node_types`, the prefixes of computed keys. Each returns what its head
-- says by `answer`.
local ALIVE, IDS, LOADS, NAMES, LAPSES, CALLED
local FIELDS = {'id', 'incarnation', 'api_url', 'supported_nodes', 'capacity', 'running', 'host', 'pid', 'sdk',
  'labels', 'registered_at', 'last_heartbeat', 'status', 'replaced'}
local ID, INCARNATION, API_URL, TYPES, REGISTERED, HEARTBEAT, STATUS, REPLACED = 1, 2, 3, 4, 11, 12, 13, 14

-- A worker is alive if its last heartbeat is after `alive_after`, and on record if it is after `recorded_after`.
local time, alive_after, recorded_after
local removed
fresh(function()
  removed = nil
  ALIVE, IDS, LOADS, NAMES, LAPSES, CALLED = unpack(KEYS, 1, 6)
  time = now(args.now_ms)
  alive_after = time - args.time_to_live
  recorded_after = alive_after - args.retention
end)

-- Does as redis.call with a command about one key. A key of another type, which somebody has put in its place, gives
-- way: what workers report next fills it again. Only a doctor leaves it there, and names it.
local function call(verb, key, ...)
  local reply = redis.pcall(verb, key, ...)
  if type(reply) ~= 'table' or not reply.err then return reply end
  if args.section or not string.find(reply.err, '^WRONGTYPE') then error({err = key .. ': ' .. reply.err}) end
  redis.call('DEL', key)
  removed = removed or {}
  removed[#removed + 1] = key
  return redis.call(verb, key, ...)
end

-- Returns what a script replies, with the keys of another type that it has removed.
local function answer(reply) return cmsgpack.pack({reply, removed}) end

-- Formats a time as text: Lua itself would write a large number with an exponent.
local function text(number)
  return string.format('%.0f', number)
end

local function worker_key(id)
  return args.workers .. id
end

local function node_type_key(name)
  return args.node_types .. name
end

local function offering_key(name)
  return args.node_types .. name .. ':workers'
end

-- Returns a worker as the values of FIELDS, nil when it is not on record. A record that lacks a field is none: the next
-- heartbeat writes it anew.
local function record(id)
  local row = call('HMGET', worker_key(id), unpack(FIELDS))
  for place = 1, #FIELDS do
    if not row[place] then return nil end
  end
  if (tonumber(row[HEARTBEAT]) or 0) <= recorded_after then return nil end
  return row
end

-- Removes a worker from every index of workers.
local function unlist(id)
  for _, index in ipairs({ALIVE, IDS, LOADS, CALLED}) do call('ZREM', index, id) end
end

-- Marks a worker as draining.
local function drain(row)
  row[STATUS] = 'draining'
  call('HSET', worker_key(row[ID]), 'status', 'draining')
  call('ZREM', LOADS, row[ID])
end

local function is_alive(row)
  return tonumber(row[HEARTBEAT]) > alive_after
end

local function size(row)
  local bytes = 0
  for _, value in ipairs(row) do bytes = bytes + #value end
  return bytes
end

-- Whether `word` is among the space-separated `words`.
local function has_word(words, word)
  return string.find(' ' .. words .. ' ', ' ' .. word .. ' ', 1, true) ~= nil
end
