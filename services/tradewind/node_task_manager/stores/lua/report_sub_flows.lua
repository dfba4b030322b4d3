-- Takes reports about cycles of other flows that node tasks wait for: the end of a cycle completes a node task, or
-- fails its attempt.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, reports {task_id, run_id, attempt, kind
-- (begun, completed, failed), child (name of the run, "" for none), output (JSON text), error, final (no further
-- attempt)}. Returns Effects; results, one for each report: "" if a node task waits, or waited until now, for that
-- cycle, else why not.
--!include claim
local function handle_report(report)
  local record = task(report.task_id)
  local comp = record and component_of(record)
  if not comp or comp.run_id ~= report.run_id then return 'no such node task' end
  if record.status ~= 'suspended' then return 'the node task is ' .. record.status end
  if (record.attempt or 0) ~= report.attempt then return 'another attempt is waiting' end
  if comp.stop then return 'the component is being stopped' end
  local child = stored(record, 'child')
  if child and child ~= '' and child ~= report.child then return 'it waits for ' .. child end
  if child ~= report.child then note(record, 'child', report.child) end
  if report.kind == 'begun' then return '' end
  if report.kind == 'completed' then
    suspension.resume(record, comp, nil, 'output', report.output)
  else
    undelay(record)
    logs.add_error(record, report.error)
    retries.fail(record, comp, report.error, {none = report.final})
  end
  return ''
end

budget = budget - #args.reports
for i, report in ipairs(args.reports) do effects.results[i] = handle_report(report) end
return cmsgpack.pack(conclude())
