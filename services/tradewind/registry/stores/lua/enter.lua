--!include records
-- Puts a worker on record as alive. args beyond those of records.lua: worker (the first ten of FIELDS), offered (names
-- of node types), load, max_workers, replaced_kept.
local worker, offered
fresh(function() worker, offered = args.worker, args.offered end)

-- Removes the worker from the node types that it no longer offers.
local function remove_old_types(before)
  local still = {}
  for _, name in ipairs(offered) do still[name] = true end
  for _, name in ipairs(cjson.decode(before[TYPES])) do
    if not still[name] then call('ZREM', offering_key(name), worker[ID]) end
  end
end

-- Adds the worker to the node types that it offers and prolongs their declarations; returns whether one is missing.
local function add_types()
  if #offered == 0 then return false end
  local missing, lapses = false, call('ZMSCORE', LAPSES, unpack(offered))
  for i, name in ipairs(offered) do
    local offering = offering_key(name)
    call('ZADD', offering, time, worker[ID])
    call('ZREMRANGEBYSCORE', offering, '-inf', alive_after)
    redis.call('PEXPIRE', offering, args.time_to_live)
    if lapses[i] and tonumber(lapses[i]) > time then
      call('ZADD', LAPSES, time + args.time_to_live + args.retention, name)
      redis.call('PEXPIRE', node_type_key(name), args.time_to_live + args.retention)
    else
      missing = true
    end
  end
  return missing
end

local function first_incarnations(words, most)
  local kept = {}
  for word in string.gmatch(words, '%S+') do
    if #kept < most then kept[#kept + 1] = word end
  end
  return table.concat(kept, ' ')
end

-- Whether there is no room for one more worker.
local function is_full()
  return call('ZCOUNT', ALIVE, '(' .. text(recorded_after), '+inf') >= args.max_workers
end

-- Enters the worker; returns the new record, and whether a node type that it offers is not declared.
local function enter(before)
  local row = {unpack(worker)}
  row[REGISTERED], row[HEARTBEAT], row[STATUS], row[REPLACED] = text(time), text(time), 'active', ''
  if before then
    remove_old_types(before)
    if before[INCARNATION] == worker[INCARNATION] then
      for _, field in ipairs({REGISTERED, STATUS, REPLACED}) do row[field] = before[field] end
    else
      row[REPLACED] = first_incarnations(before[INCARNATION] .. ' ' .. before[REPLACED], args.replaced_kept)
    end
  end
  local flat = {}
  for i, field in ipairs(FIELDS) do
    flat[#flat + 1] = field
    flat[#flat + 1] = row[i]
  end
  local key = worker_key(worker[ID])
  call('HSET', key, unpack(flat))
  redis.call('PEXPIRE', key, args.time_to_live + args.retention)
  call('ZADD', ALIVE, time, worker[ID])
  call('ZADD', IDS, 0, worker[ID])
  if row[API_URL] ~= '' then
    call('ZADD', CALLED, 0, worker[ID])
  elseif not before or before[API_URL] ~= '' then
    call('ZREM', CALLED, worker[ID])
  end
  if row[STATUS] == 'active' then
    call('ZADD', LOADS, args.load, worker[ID])
  else
    call('ZREM', LOADS, worker[ID])
  end
  return row, add_types()
end
