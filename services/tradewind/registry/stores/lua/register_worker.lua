--!include enter
-- Puts a worker on record and declares the node types it offers. KEYS: as records.lua, then the worker, then a hash for
-- each declaration. args as enter.lua, and declarations ({name, body} each), max_node_types.
-- Returns {time, the record, empty when refused, why it was refused or ''}.
local before = record(worker[ID])
if before and has_word(before[REPLACED], worker[INCARNATION]) then
  return answer({time, {}, 'replaced'})
end
if not before and is_full() then
  return answer({time, {}, 'too_many_workers'})
end
local known = call('ZCOUNT', LAPSES, '(' .. text(time), '+inf')
for _, declaration in ipairs(args.declarations) do
  local lapses = call('ZSCORE', LAPSES, declaration[1])
  if not lapses or tonumber(lapses) <= time then known = known + 1 end
end
if #args.declarations > 0 and known > args.max_node_types then
  return answer({time, {}, 'too_many_node_types'})
end
for i, declaration in ipairs(args.declarations) do
  local name, body = declaration[1], declaration[2]
  call('HSET', KEYS[7 + i], 'type', name, 'declaration', body, 'declared_at', text(time))
  call('ZADD', NAMES, 0, name)
  call('ZADD', LAPSES, time + args.time_to_live + args.retention, name)
  redis.call('PEXPIRE', KEYS[7 + i], args.time_to_live + args.retention)
end
local row = enter(before)
return answer({time, row, ''})
