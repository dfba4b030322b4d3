--!include records
-- Events for the scheduler, in a stream for each partition. All that a script adds to one is a single entry, which has
-- the id of the last event in it; the others have the ids just before that. The caller gets each event with the id of
-- the previous one of its partition: a subscriber who knows that one need not read the stream.
local scheduler = {}
do
  local partitions, added_to = {}, {}
  fresh(function() if #partitions > 0 then partitions, added_to = {}, {} end end)

  -- Adds an event, with facts that begin with the time.
  function scheduler.add_event(partition, kind, ...)
    local events = added_to[partition]
    if not events then
      events = {}
      added_to[partition], partitions[#partitions + 1] = events, partition
    end
    events[#events + 1] = {kind, '', partition, ...}
  end

  -- Returns what the ids of this script's events begin with: its time, or later if the last event is not older.
  local function time_after(last)
    local ms = tonumber(string.match(last, '^%d+'))
    return ms < time and stamp or string.format('%.0f', ms + 1)
  end

  -- Writes the events.
  function scheduler.write_events()
    if #partitions == 0 then return end
    local all, lasts = {}, {}
    for i, last in ipairs(call('HMGET', base .. 'last_events', unpack(partitions))) do
      local partition, before = partitions[i], last or '0'
      local events, beginning = added_to[partition], time_after(before) .. '-'
      for at = 1, #events do
        local id = beginning .. digits[at - 1]
        events[at][2], all[#all + 1] = id, {before, events[at]}
        before = id
      end
      call('XADD', base .. 'events:' .. digits[partition], before, 'e', cmsgpack.pack(events))
      lasts[#lasts + 1], lasts[#lasts + 2] = partition, before
    end
    call('HSET', base .. 'last_events', unpack(lasts))
    effects.events = all
  end
end
