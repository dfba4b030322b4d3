-- Gives running node tasks the slots of limits that were set after they began, a page of node tasks at a time.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies (empty), cursor ("0" to begin).
-- Returns the cursor to go on with, "0" at the end.
--!include slots
local PAGE = 250

local function recount(record, entry, comp)
  local had = record.slots or ''
  local names = had
  for _, limit in ipairs(slots.of(entry, comp)) do
    if not string.find(' ' .. had .. ' ', ' ' .. limit .. ' ', 1, true) then
      put('slots:' .. limit, record.id, tonumber(read_rest(record).started_at))
      names = names == '' and limit or names .. ' ' .. limit
    end
  end
  if names ~= had then set_state(record, 'slots', names) end
end

local cursor, found = unpack(index_call('ZSCAN', base .. 'inflight', args.cursor, 'COUNT', PAGE))
for at = 1, #found, 2 do
  local record = task(found[at])
  local comp = record and record.status == 'running' and component_of(record)
  if comp then recount(record, node(comp.plan, record.index), comp) end
end
write_all()
return cmsgpack.pack(cursor)
