-- Takes back node tasks that their workers never got, and makes them ready again later: another node task finishes the
-- same work first.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, postponed {task_id, nonce, wait_ms}.
-- Returns Effects; results, one for each node task: "" when it waits now, else "lost".
--!include give_back
local function postpone(record, wait)
  local comp = component_of(record)
  release_lease(record)
  set_state(record, 'nonce', '')
  if not comp then return false end
  local entry = node(comp.plan, record.index)
  slots.return_tokens(entry, comp)
  if record.stop then
    finish(record, comp, 'terminated', cmsgpack.unpack(record.stop).reason)
    return false
  end
  if entry.total then
    local left = tonumber(read_rest(record).total_at) - time
    if left <= 0 then
      suspension.end_total_time(record, comp, entry)
      return false
    end
    wait = math.min(wait, left)
  end
  set(record, 'retry_at', time + math.max(1, wait))
  set(record, 'postponed', record.retry_at)
  changed(comp, -1, record, 'waiting')
  record.status, record.comp = 'pending', comp
  delaying[#delaying + 1] = record
  return true
end

for i, given in ipairs(args.postponed) do
  local record = task(given.task_id)
  effects.results[i] = holds_lease(record, given.nonce) and postpone(record, given.wait_ms) and '' or 'lost'
end
return cmsgpack.pack(conclude())
