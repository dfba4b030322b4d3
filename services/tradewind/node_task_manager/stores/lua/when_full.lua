--!include retries
-- Decides about a ready node task that its own limits hold back: it waits, unless its key says otherwise.
local when_full = {}
do
  local HOLDERS, PAGE, WAITERS = 500, 100, 100
  -- By limit, how many of its holders, from the first on, this script need not check again: none of them can be stopped.
  local checked = {}
  fresh(function() if next(checked) then checked = {} end end)

  local function skip(record, comp, reason)
    remove('start_deadlines', record.id)
    finish(record, comp, 'skipped', reason)
  end

  -- Asks the node task that has run longest under a key, and is not stopping yet, to stop; returns false if there is
  -- none among the first HOLDERS.
  local function stop_oldest(limit, reason)
    local oldest
    local function consider(id)
      local record = task(id)
      if record and record.status == 'running' and not record.stop and record.slots ~= '' then
        local at = tonumber(read_rest(record).started_at)
        if not oldest or at < oldest.at or (at == oldest.at and id < oldest.record.id) then oldest = {at = at, record = record} end
      end
    end
    local first, ids = checked[limit] or 0, nil
    repeat
      checked[limit] = first
      ids = call('ZRANGE', base .. 'slots:' .. limit, first, first + PAGE - 1)
      for _, id in ipairs(ids) do consider(id) end
      first = first + PAGE
    until oldest or #ids < PAGE or first >= HOLDERS
    local new = added['slots:' .. limit] or {}
    for at = 2, #new, 2 do consider(new[at]) end
    if oldest then stopping.request(oldest.record, stopping.system_mark(reason)) end
    return oldest ~= nil
  end

  -- Skips the first `count` node tasks that wait in the same group.
  local function skip_waiters(group, count, reason)
    for _, id in ipairs(call('ZRANGE', base .. 'blocked:' .. group, 0, count - 1)) do
      local record = task(id)
      local comp = record and component_of(record)
      call('ZREM', base .. 'blocked:' .. group, id)
      if comp and record.status == 'pending' then
        set(record, 'blocked', '')
        skip(record, comp, reason)
      end
    end
  end

  -- Handles a node task for which `limit`, one of its `own` (its name, and how many it lets run), has no room. Each
  -- node task is judged once, and then waits its turn.
  function when_full.hold_back(record, entry, comp, limit, own, rank)
    if entry.when_full and string.sub(limit[1], 1, 4) == 'key:' and not read_rest(record).blocked then
      local group = limit[1] .. '|' .. slots.group_of(limit, entry, comp)
      local reason = 'key "' .. entry.key .. '" is full (' .. limit[2] .. ' of ' .. limit[2] .. ' running) and when_full is ' .. entry.when_full
      if entry.when_full == 'drop_new' then return skip(record, comp, reason) end
      local newer = reason .. ': ' .. record.id .. ' is newer'
      if entry.when_full == 'keep_newest' then
        skip_waiters(group, WAITERS, newer)
      elseif not stop_oldest(limit[1], newer) then
        skip_waiters(group, 1, newer)
      end
    end
    slots.block(record, entry, comp, limit, own, rank)
  end
end
