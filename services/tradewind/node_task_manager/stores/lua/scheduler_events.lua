--!include records
-- Events for the scheduler. The caller gets each event with the id of the previous event of its partition: a subscriber
-- who knows that one need not read the stream.
local scheduler = {}
do
  local call = index_call
  local last, firsts = {}, {}
  fresh(function() if #firsts > 0 then last, firsts = {}, {} end end)

  -- Adds an event; `facts` begins with the time.
  function scheduler.add_event(partition, kind, facts)
    local id, events = call('XADD', base .. 'events:' .. digits[partition], '*', kind, cmsgpack.pack(facts)),
      effects.events or {}
    effects.events = events
    local event = {last[partition] or '0', {kind, id, partition, unpack(facts)}}
    if not last[partition] then firsts[#firsts + 1] = event end
    last[partition], events[#events + 1] = id, event
  end

  function scheduler.write_last()
    if #firsts == 0 then return end
    local partitions, ids = {}, {}
    for i, event in ipairs(firsts) do partitions[i] = event[2][3] end
    for i, id in ipairs(call('HMGET', base .. 'last_events', unpack(partitions))) do firsts[i][1] = id or '0' end
    for partition, id in pairs(last) do ids[#ids + 1], ids[#ids + 2] = partition, id end
    call('HSET', base .. 'last_events', unpack(ids))
  end
end
