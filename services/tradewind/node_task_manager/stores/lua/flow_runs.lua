--!include shard
-- `flow_runs:<flow>` holds the latest run `<cycle>:<run>` of each cycle by number. Open runs score OPEN more, above all
-- others, until the cleaner has seen that they have ended.
local flow_runs = {EACH = 1024, OPEN = 2 ^ 46}

-- Returns the flow of a run, and the name of the run within it.
function flow_runs.names(run) return string.match(run, '^([^:]+):(.+)$') end

-- Returns the cycle and the number of a run, nil for an entry that somebody has put there, which names none.
function flow_runs.parts(name) return string.match(name, '^(%d+):(%d+)$') end

function flow_runs.number(name)
  local cycle, run = flow_runs.parts(name)
  return cycle * flow_runs.EACH + run
end

-- Reads an entry of the list `walks`; nil for what somebody has put there, which is no run that is being removed.
function flow_runs.walked(text)
  local readable, entry = pcall(cmsgpack.unpack, text)
  local names_run = readable and type(entry) == 'table' and #entry == 5 and type(entry[1]) == 'string'
    and string.find(entry[1], '^[^:]+:%d+:%d+$')
  return names_run and entry or nil
end

-- Returns when a component of a run began.
function flow_runs.begun_at(run, id)
  local PLACE = 10
  return (select(PLACE, cmsgpack.unpack(call('HGET', base .. 'run:' .. run, id .. '/facts'))))
end
