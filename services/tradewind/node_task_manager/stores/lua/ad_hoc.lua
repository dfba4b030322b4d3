--!include records
--!level
-- Runs outside any flow, ad-hoc tasks and batches: counting what runs of them, telling who watches, listing by user.
local NO_PARTITION, TOLD_MS = -1, 100
local running, touched = {}, {}

-- Such a run has changed, and so many more of its nodes run. Each script tells of it at most ten times a second, and always
-- of its end, so whoever was told looks again a little later.
local function changed(comp, more)
  if comp.partition == NO_PARTITION then
    touched[comp] = true
    running[comp] = (running[comp] or 0) + more
  end
end

local function list_of(user, run) return base .. 'user_runs:' .. user .. ':' .. string.match(run, '^[^:]+') end

local function list_run(user, run) call('ZADD', list_of(user, run), stamp, run) end

-- A run that has ended leaves the list of its user when its records expire.
local function expire_listed(comp) put('ended_runs', comp.user_id .. ':' .. comp.run, time + limits.retention) end

local function write_changed()
  for comp, more in pairs(running) do
    if more ~= 0 then call('HINCRBY', comp.key, 'running', more) end
  end
  for comp in pairs(touched) do
    if comp.status == 'finished' then
      call('PUBLISH', base .. 'wake', 'f:' .. comp.run)
    elseif call('SET', base .. 'told:' .. comp.run, '', 'NX', 'PX', TOLD_MS) then
      call('PUBLISH', base .. 'wake', 'r:' .. comp.run)
    end
  end
end
