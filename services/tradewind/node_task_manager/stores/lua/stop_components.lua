-- Sets a stop mark for a run or a component, and stops what exists of it.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, run, run_id, component ("" for all), reason,
-- by, mark_ms (how long the mark stays). Returns Effects; results: how many node tasks this script skipped, and how
-- many it asked to stop.
--!include claim
local at = base .. 'stop:' .. args.run .. (args.component == '' and '' or ':' .. args.component)
local packed_mark = index_call('GET', at)
local mark = packed_mark and cmsgpack.unpack(packed_mark)
local run_id, component_ids = known_run(args.run)
if not mark or mark.run_id ~= args.run_id then
  mark = {run_id = args.run_id, reason = args.reason, by = args.by, at = time}
  local gone, flow = not run_id, string.match(args.run, '^([^:]+):.*:')
  -- No ad-hoc run is stopped before it is submitted, and the name of one that is gone may be that of another soon.
  if flow or not gone then
    -- If the run was removed with its flow, the mark stays only as long as the tombstone.
    local purged = gone and call('EXISTS', base .. 'purged:' .. flow) == 1
    call('SET', at, cmsgpack.pack(mark), 'PX', purged and math.min(args.mark_ms, limits.tombstone_ms) or args.mark_ms)
  end
end
if run_id == args.run_id then
  local stop = cmsgpack.pack({reason = mark.reason, by = mark.by, at = mark.at})
  for _, id in ipairs(component_ids) do
    local comp = (args.component == '' or args.component == id) and component(args.run, id)
    -- Components that handle the outcome of the run are not stopped with it, only by name.
    local spared = comp and args.component == '' and (comp.early == 'held' or comp.early == 'freed')
    if comp and not spared then stopping.component(comp, stop) end
  end
end
settle()
local skipped, terminating = 0, 0
for id, record in pairs(records) do
  if record and record.just_ended and record.status == 'skipped' and run_of(id) == args.run then
    skipped = skipped + 1
  end
end
for _, termination in ipairs(effects.terminations or {}) do
  if run_of(termination.task_id) == args.run then terminating = terminating + 1 end
end
effects.results = {tostring(skipped), tostring(terminating)}
return cmsgpack.pack(conclude())
