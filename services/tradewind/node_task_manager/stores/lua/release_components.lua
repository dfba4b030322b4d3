-- Lets withheld components begin, or skips them, also those whose plan is lost; components that are no longer withheld
-- are left alone.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, run, run_id, components {[id, inputs_json
-- (what its entry nodes get instead of the run's inputs), skip (why it is skipped, "" to begin)]}.
-- Returns Effects.
--!include claim
if known_run(args.run) == args.run_id then
  for _, each in ipairs(args.components) do
    local comp = component(args.run, each[1])
    if comp and comp.early == 'held' and not comp.stop then
      local reason = stored_plans.has(comp.plan) and each[3] or 'the store has lost its plan'
      if reason ~= '' then
        set_eventful(comp, 'early', 'unwanted')
        stopping.component(comp, stopping.system_mark(reason))
      else
        set_eventful(comp, 'early', 'freed')
        -- Written at once: handing over the entry nodes in this script reads them.
        if each[2] ~= '' then call('HSET', comp.key, comp.at .. 'inputs', each[2]) end
        todo.begin_entries(comp)
      end
    end
  end
end
return cmsgpack.pack(conclude())
