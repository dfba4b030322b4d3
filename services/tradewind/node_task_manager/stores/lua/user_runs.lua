--!include flow_runs
-- `user_runs:<user>:<kind>` holds the tasks, or the batches, of a user by when they were submitted. Open ones score
-- OPEN more, above all others.
local user_runs = {OPEN = flow_runs.OPEN}

function user_runs.list(user, run) return 'user_runs:' .. user .. ':' .. string.match(run, '^[^:]+') end

-- Whatever somebody has made of the list, runs begin and end.
function user_runs.put(user, run, score)
  redis.pcall('ZADD', base .. user_runs.list(user, run), string.format('%.0f', score), run)
end
