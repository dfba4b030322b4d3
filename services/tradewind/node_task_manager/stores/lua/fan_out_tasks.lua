-- Carries out an offer of a mapped node: splits a list into items, or ends the node with the joined results or an
-- error. A step whose offer was made anew, or has become useless, changes nothing.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, step {task_id, nonce, kind, items, need,
-- outputs, error}. Returns Effects; results: "" when it took effect, else why not.
--!include claim
local function carry_out(step)
  local record = task(step.task_id)
  if not record then return 'no such node task' end
  if TERMINAL[record.status] then return 'the node task is ' .. record.status end
  if record.nonce ~= step.nonce then return 'a newer offer was made' end
  local comp = component_of(record)
  if not comp then return 'the run is gone' end
  if comp.stop then return 'the component is being stopped' end
  if node(comp.plan, record.index).lost then return stopping.PLAN_LOST end
  if step.kind == 'split' then
    fan_out.split(record, comp, step.items, step.need)
    return ''
  end
  if record.status == 'pending' then fan_out.begin(record, comp) else fan_out.withdraw(record) end
  if step.kind == 'failed' then
    logs.add_error(record, step.error)
    fail(record, comp, step.error)
  else
    emit(record, step.outputs)
    finish(record, comp, 'completed')
  end
  return ''
end

budget = budget - 1
effects.results[1] = carry_out(args.step)
return cmsgpack.pack(conclude())
