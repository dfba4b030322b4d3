--!include records
--!include findings
-- Looks for broken invariants in some of the workers and node types, and mends them on a second pass. KEYS: as
-- records.lua. args beyond those of records.lua: section (1 or 2), cursor ("0" to begin), count, recheck (names of
-- findings to check a second time, or nil), mend.
-- Returns {how many it checked, findings {check, subject, problem, mended}, section (0 at the end), cursor}.
local checked = 0

local function remove_entry(key, member) return function() redis.call('ZREM', key, member) end end

-- A worker on record is in every index that it belongs to, and an index entry has a record.
local function examine_worker(id, beat)
  if beat <= recorded_after or not fits('hash', worker_key(id)) then return end
  local row = record(id)
  if not row then
    return found('index-without-record', 'alive ' .. id, 'no such worker is on record', function() unlist(id) end)
  end
  if redis.call('PTTL', worker_key(id)) == -1 then
    found('no-time-to-live', 'worker ' .. id, 'its record would stay for ever after the worker is gone',
      function() redis.call('PEXPIRE', worker_key(id), args.time_to_live + args.retention) end)
  end
  if not redis.call('ZSCORE', IDS, id) then
    found('worker-not-listed', id, 'it is alive, but not in the list of workers', function()
      redis.call('ZADD', IDS, 0, id)
    end)
  end
  if row[API_URL] ~= '' and not redis.call('ZSCORE', CALLED, id) then
    found('worker-not-listed', id .. ' called',
      'it has an api_url, but is not in the list of workers to call', function()
      redis.call('ZADD', CALLED, 0, id)
    end)
  end
  if not is_alive(row) then return end
  for _, name in ipairs(cjson.decode(row[TYPES])) do
    checked = checked + 1
    if not redis.call('ZSCORE', offering_key(name), id) then
      found('worker-not-listed', id .. ' ' .. name,
        'it offers the node type, but is not listed as offering it', function()
        redis.call('ZADD', offering_key(name), row[HEARTBEAT], id)
        redis.call('PEXPIRE', offering_key(name), args.time_to_live)
      end)
    end
  end
end

-- A listed node type has a declaration, and the workers listed as offering it do.
local OFFERING = 50
local function examine_node_type(name, lapses)
  if lapses <= time or not fits('hash', node_type_key(name)) or not fits('zset', offering_key(name)) then return end
  if redis.call('EXISTS', node_type_key(name)) == 0 then
    found('index-without-record', 'node_types ' .. name, 'no such node type is declared', function()
      for _, index in ipairs({NAMES, LAPSES}) do redis.call('ZREM', index, name) end
    end)
  elseif not redis.call('ZSCORE', NAMES, name) then
    found('node-type-not-listed', name, 'it is declared, but not in the list of node types',
      function() redis.call('ZADD', NAMES, 0, name) end)
  end
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', offering_key(name), '(' .. text(alive_after), '+inf', 'LIMIT', 0,
    OFFERING)) do
    checked = checked + 1
    local row, offers = record(id), false
    for _, other in ipairs(row and cjson.decode(row[TYPES]) or {}) do offers = offers or other == name end
    if not offers then
      found('node-type-without-worker', name .. ' ' .. id, 'the worker is listed as offering it, but does not',
        remove_entry(offering_key(name), id))
    end
  end
end

local SECTIONS = {{ALIVE, examine_worker, 'alive '}, {LAPSES, examine_node_type, 'node_types '}}
local index, examine, name = unpack(SECTIONS[args.section])
local cursor, members = '0', {}
if args.cursor == '0' then
  for at = 1, 6 do fits('zset', KEYS[at]) end
end
if redis.call('TYPE', index).ok == 'zset' then
  cursor, members = unpack(redis.call('ZSCAN', index, args.cursor, 'COUNT', args.count))
end
for at = 1, #members, 2 do
  checked = checked + 1
  examined(name .. members[at], examine, members[at], tonumber(members[at + 1]))
end
local section = cursor ~= '0' and args.section or SECTIONS[args.section + 1] and args.section + 1 or 0
return answer({checked, findings, section, cursor})
