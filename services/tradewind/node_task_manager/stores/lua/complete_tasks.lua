-- Ends attempts: stores outputs or errors, delivers signals, releases or skips successors, and gives what is ready to
-- vacancies. An attempt that does not hold its lease changes nothing.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, outcomes {task_id, attempt, nonce, kind,
-- outputs, error, wish {after_ms, none}, cache (where the outputs come from, or ""), wait (of a suspended one)}. Returns
-- Effects; results, one for each outcome: "" when it took effect or had before, else why not.
--!include claim
local function lost(record, outcome)
  if not record then return 'no such node task' end
  if TERMINAL[record.status] then
    if record.nonce == outcome.nonce then return '' end
    return 'the node task is ' .. record.status
  end
  -- A store that lost its last second does not know the attempt that its worker went on with.
  if (record.attempt or 0) < outcome.attempt and record.status ~= 'registered' then return nil end
  if record.nonce ~= outcome.nonce or record.status ~= 'running' then
    if (outcome.kind == 'failed' or outcome.kind == 'suspended') and retries().has_failed(record, outcome.nonce) then return '' end
    return 'the lease lapsed; this is attempt ' .. outcome.attempt .. ', the latest is ' .. (record.attempt or 0)
  end
end

budget = budget - #args.outcomes
for i, outcome in ipairs(args.outcomes) do
  local record = task(outcome.task_id)
  local refused = lost(record, outcome)
  local comp = not refused and component_of(record)
  if comp and node(comp.plan, record.index).map and fan_out().owns(record) then
    effects.results[i] = 'the node runs once for each item of a list; only its items are given to workers'
  elseif not comp then
    effects.results[i] = refused or 'the run is gone'
  else
    effects.results[i] = ''
    if record.status == 'running' then release_lease(record) else dequeue(record, comp) end
    if record.nonce ~= outcome.nonce then
      set(record, 'nonce', outcome.nonce)
      set(record, 'attempt', outcome.attempt)
    end
    if outcome.kind == 'failed' then
      retries().fail(record, comp, outcome.error, outcome.wish)
    elseif outcome.kind == 'completed' then
      record.outputs = outcome.outputs
      for _, output in ipairs(outcome.outputs) do note(record, 'out:' .. output[1], output[2]) end
      if outcome.cache ~= '' then
        note(record, 'cached', outcome.cache)
        set(record, 'worker_id', '')
        set(comp, 'cached', (comp.cached or tonumber(call('HGET', comp.key, 'cached') or 0)) + 1)
      end
      finish(record, comp, 'completed')
    elseif outcome.kind == 'suspended' and not record.stop and not comp.stop then
      set(record, 'settled', record.nonce)
      suspension().begin(record, comp, outcome.wait)
    else
      finish(record, comp, 'terminated',
        record.stop and cmsgpack.unpack(record.stop).reason or outcome.error and outcome.error.message)
    end
  end
end
return cmsgpack.pack(conclude())
