--!include queues
-- Turns: of the users who have node tasks queued, each type has a ring, by where in virtual time their next turn is.
local turns = {}
do
  local call = index_call
  local weights = {}
  fresh(function() if next(weights) then weights = {} end end)

  -- Remembers where in virtual time a user stood who left the ring of a type, until the last turn began later than
  -- that.
  function turns.remember_leaver(node_type, user, at) call('ZADD', base .. 'left:' .. node_type, at, user) end

  -- Writes the queues. Users whose queue was emptied leave the ring of its type. Then users who have node tasks now
  -- join the ring, either where the last turn began, or where they stood when they left it, if that is later. So a
  -- newcomer is next, and nobody gains or loses turns by having had no node tasks, not even a user who has a single one
  -- again and again.
  function turns.write_queues(changed)
    if not next(changed) then return end
    local emptied, heads = {}, {}
    for _, queue in pairs(changed) do
      -- In this order: a node task that was taken out and is ready again is in both.
      in_pieces('ZREM', queue.key, queue.removed)
      in_pieces('ZADD', queue.key, queue.added)
      queue.empty = #queue.removed > 0 and call('EXISTS', queue.key) == 0
      if queue.empty then
        local at = call('ZSCORE', base .. 'ring:' .. queue.type, queue.user)
        if at then
          call('ZREM', base .. 'ring:' .. queue.type, queue.user)
          turns.remember_leaver(queue.type, queue.user, at)
          emptied[queue.type] = true
        end
      end
    end
    for node_type in pairs(emptied) do
      if call('EXISTS', base .. 'ring:' .. node_type) == 0 then
        call('ZREM', base .. 'ready_types', node_type)
        call('DEL', base .. 'left:' .. node_type)
      end
    end
    for _, queue in pairs(changed) do
      if #queue.added > 0 and not queue.empty or queue.rejoins and call('EXISTS', queue.key) == 1 then
        local ring, left = base .. 'ring:' .. queue.type, base .. 'left:' .. queue.type
        local begun = heads[queue.type]
        if begun == nil then
          begun = call('ZCARD', ring) > 0 and tonumber(call('ZSCORE', left, '') or 0)
          heads[queue.type] = begun
          if not begun then call('ZADD', base .. 'ready_types', 'NX', time, queue.type) end
        end
        local last_place = begun and call('ZSCORE', left, queue.user)
        call('ZADD', ring, 'NX', math.max(begun or 0, tonumber(last_place or 0)), queue.user)
        if last_place then call('ZREM', left, queue.user) end
      end
    end
  end

  -- Returns the cost of a turn: the greater the user's weight, the less. It matters only while other users wait as
  -- well.
  function turns.cost(user)
    local TURN = 1000000
    if not limits.weighted then return TURN end
    if not weights[user] then
      weights[user] = tonumber(redis.pcall('HGET', base .. 'user_weights', user)) or 1
    end
    return math.floor(TURN / weights[user] + 0.5)
  end

  -- Takes up to `wanted` of the first node tasks of the user whose turn it is. Returns them with their ranks: none if
  -- the user is at the limit, and is parked; nil when the type has no users left. Also returns the user, where in
  -- virtual time the turn begins, and whether the user has left the ring with it.
  function turns.take(node_type, wanted)
    local ring = base .. 'ring:' .. node_type
    local users = call('ZRANGE', ring, 0, 1, 'WITHSCORES')
    if #users == 0 then return nil end
    local user, open, alone = users[1], slots.room_of_user(users[1]), #users == 2
    local taken, left, count = {}, true, alone and math.min(wanted, open) or 1
    if open <= 0 then
      call('ZADD', base .. 'parked', 0, user .. ':' .. node_type)
    else
      local queue = base .. 'ready:' .. node_type .. ':' .. user
      taken = call('ZPOPMIN', queue, count)
      left = #taken < 2 * count or call('EXISTS', queue) == 0
    end
    if left then
      call('ZREM', ring, user)
      if alone then call('ZREM', base .. 'ready_types', node_type) end
    end
    return taken, user, tonumber(users[2]), left and (alone and 'last' or 'left')
  end
end
