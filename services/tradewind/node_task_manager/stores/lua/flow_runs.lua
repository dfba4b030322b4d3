--!include shard
-- `flow_runs:<flow>` holds the latest run `<cycle>:<run>` of each cycle by number. Open runs score OPEN more, above all
-- others, until the cleaner has seen that they have ended.
local flow_runs = {EACH = 1024, OPEN = 2 ^ 46}

-- Returns the flow of a run, and the name of the run within it.
function flow_runs.names(run) return string.match(run, '^([^:]+):(.+)$') end

function flow_runs.number(name)
  local cycle, run = string.match(name, '^(%d+):(%d+)$')
  return cycle * flow_runs.EACH + run
end

-- Returns when a component of a run began.
function flow_runs.begun_at(run, id)
  local PLACE = 10
  return (select(PLACE, cmsgpack.unpack(call('HGET', base .. 'run:' .. run, id .. '/facts'))))
end
