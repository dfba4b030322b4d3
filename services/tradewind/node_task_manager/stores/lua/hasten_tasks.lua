-- Makes postponed node tasks ready now: the result that they wait for is there, or will not come.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, task_ids. Returns Effects; results, one for
-- each node task: "" when it is ready now, else why not.
--!include claim
for i, id in ipairs(args.task_ids) do
  local record = task(id)
  local at = record and record.status == 'pending' and tonumber(read_rest(record).retry_at) or 0
  local comp = at > 0 and component_of(record)
  if not comp then
    effects.results[i] = 'does not wait'
  elseif at ~= tonumber(record.postponed) then
    effects.results[i] = 'waits for its next attempt'
  else
    effects.results[i] = ''
    undelay(record)
    enqueue(record, comp)
  end
end
return cmsgpack.pack(conclude())
