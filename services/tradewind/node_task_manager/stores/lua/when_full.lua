--!include retries
-- Decides about a ready node task that its own limits hold back: it waits, unless its key says otherwise.
local when_full = {}
do
  local call = index_call
  local HOLDERS, PAGE, WAITERS = 500, 100, 100
  -- By limit, how many of its holders, from the first on, this script need not check again: none of them can be
  -- stopped.
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
        if not oldest or at < oldest.at or (at == oldest.at and id < oldest.record.id) then
          oldest = {at = at, record = record}
        end
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

  -- Skips the first `count` node tasks that wait for a limit, of whichever group.
  local function skip_waiters(limit, count, reason)
    local waiting = {}
    for _, group in ipairs(call('SMEMBERS', base .. 'blocked_by:' .. limit)) do
      local ranks = call('ZRANGE', base .. 'blocked:' .. limit .. '|' .. group, 0, count - 1, 'WITHSCORES')
      for i = 1, #ranks, 2 do waiting[#waiting + 1] = {id = ranks[i], rank = tonumber(ranks[i + 1]), group = group} end
    end
    table.sort(waiting, function(a, b) return a.rank < b.rank or (a.rank == b.rank and a.id < b.id) end)
    for i = 1, math.min(count, #waiting) do
      local key, record = base .. 'blocked:' .. limit .. '|' .. waiting[i].group, task(waiting[i].id)
      local comp = record and component_of(record)
      call('ZREM', key, waiting[i].id)
      if call('EXISTS', key) == 0 then slots.forget_group(limit, waiting[i].group) end
      if comp and record.status == 'pending' then
        set(record, 'blocked', '')
        skip(record, comp, reason)
      end
    end
  end

  -- Handles a node task for which `limit`, one of its `own` (its name, and how many it lets run), has no room. Each
  -- node task is judged once, before its first attempt, and then waits its turn.
  function when_full.hold_back(record, entry, comp, limit, own, rank)
    if entry.when_full and string.sub(limit[1], 1, 4) == 'key:' and not record.attempt
      and not read_rest(record).judged then
      local reason = 'key "' .. entry.key .. '" is full (' .. limit[2] .. ' of ' .. limit[2]
        .. ' running) and when_full is ' .. entry.when_full
      if entry.when_full == 'drop_new' then return skip(record, comp, reason) end
      set(record, 'judged', '1')
      local newer = reason .. ': ' .. record.id .. ' is newer'
      if entry.when_full == 'keep_newest' then
        skip_waiters(limit[1], WAITERS, newer)
      elseif not stop_oldest(limit[1], newer) then
        skip_waiters(limit[1], 1, newer)
      end
    end
    slots.block(record, entry, comp, limit, own, rank)
  end
end
