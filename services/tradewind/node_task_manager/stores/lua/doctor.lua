--!include fan_out
--!include findings
--!include naming_call
-- What the examinations of a shard's records and indexes share; docs/doctor.md lists what must hold. Nothing is
-- changed, except by mending what the second pass finds.
-- `HOLDERS`: how many of the holders of a limit, or of the leases of a worker, are examined at once.
local doctor = {HOLDERS = 100}
do
  local call = naming_call

  function doctor.ttl(key) return call('PTTL', base .. key) end
  function doctor.removal(set, member) return function() remove(set, member) end end

  -- `idle`: whether earlier scripts have left no work; nil while unknown. `broken`: which indexes are of another type.
  -- `seen`: what is looked at once in a script.
  local idle, walking, plans_on_record, broken, seen

  -- To be called first.
  function doctor.open()
    doctor.records = 0
    idle, walking, plans_on_record, broken, seen = nil, {}, {}, {}, {}
  end

  -- Whether something has not been looked at in this script.
  function doctor.is_new(name)
    local known = seen[name]
    seen[name] = true
    return not known
  end

  -- Checks that an index is of the type that scripts need: with another one they fail, those that mend as well. What
  -- was in it is lost; other checks put back what the records tell. Returns whether it is of another type.
  function doctor.index(name, kind)
    if broken[name] == nil then
      broken[name] = not fits(kind, base .. name, ', so that scripts of the shard fail', name)
    end
    return broken[name]
  end

  -- Reads an index. One of another type counts as empty.
  function doctor.read(kind, verb, name, ...)
    local reply = redis.pcall(verb, base .. name, ...)
    if type(reply) ~= 'table' or not reply.err then return reply end
    if not doctor.index(name, kind) then error({err = base .. name .. ': ' .. reply.err}) end
    return nil
  end

  function doctor.score_of(set, member) return doctor.read('zset', 'ZSCORE', set, member) end

  -- Returns the members of a set by rank, from the first to the last.
  function doctor.members(set, first, last) return doctor.read('zset', 'ZRANGE', set, first, last) or {} end

  function doctor.all_done()
    if idle == nil then idle = call('EXISTS', base .. 'todo') == 0 end
    return idle
  end

  -- Whether records of a run are being removed, or stay only for a later run of its cycle.
  function doctor.is_being_removed(run)
    if walking[run] == nil then
      local cycle, number = string.match(run, '^([^:]+:%d+:)(%d+)$')
      walking[run] = call('HEXISTS', base .. 'run:' .. run, 'dropped') == 1
        or cycle ~= nil and call('EXISTS', base .. 'run:' .. cycle .. number + 1) == 1
    end
    return walking[run]
  end

  function doctor.has_plan(comp)
    if plans_on_record[comp.plan] == nil then
      plans_on_record[comp.plan] = stored_plans.has(comp.plan)
    end
    return plans_on_record[comp.plan]
  end

  function doctor.is_leased(record) return record and record.status == 'running' and record.worker_id end
  function doctor.is_delayed(record) return (tonumber(read_rest(record).retry_at) or 0) > 0 end
end
