--!include release
--!include keep
--!include stopping
-- Fan-out: a node with `map` {edge, most} runs once for each item of the list that arrives along `edge`, at most `most`
-- at once. The node task manager carries out the mapped node's own node task, by offers: to split the list when it is
-- ready, and to join the results when all items have ended. An offer is in `delayed` until it is carried out or made
-- anew. Items that have not begun wait in `items:<node task>` and have no record. `delaying` holds failed node tasks
-- that wait for their next attempt, and offers that wait to be made anew.
local delaying = {}

do
  local touched = {}
  fresh(function()
    if #delaying > 0 then delaying = {} end
    if next(touched) then touched = {} end
  end)
  local COUNTED = {'total', 'need', 'begun', 'completed', 'failed', 'cancelled', 'bytes', 'halt', 'code', 'first'}

  -- Returns the id of the mapped node that an item belongs to, and the item's place; nil for any other node task.
  local function item_of(id) return string.match(id, '^([^:]+:[^:]+:[^:]+:[^:]+):(%d+)$') end

  function fan_out.is_item(id) return item_of(id) ~= nil end

  -- Returns the place of an item, nil for any other node task.
  function fan_out.place_of(id) return tonumber((select(2, item_of(id)))) end

  -- Returns the counts of a mapped node's items, nil before the split. `halt` is the mark that stops the rest, `code`
  -- why.
  function fan_out.counts(record)
    if record.counts == nil then
      local fields = {}
      for i, name in ipairs(COUNTED) do fields[i] = 'items_' .. name end
      local v = stored_all(record, fields)
      record.counts = v[1] and {halt = v[8], code = v[9], first = v[10]}
      for i = 1, record.counts and 7 or 0 do record.counts[COUNTED[i]] = tonumber(v[i]) end
    end
    return record.counts
  end

  local function open_of(counts) return counts.begun - counts.completed - counts.failed - counts.cancelled end

  before_writing = function()
    for record in pairs(touched) do
      if records[record.id] == record then
        for _, name in ipairs(COUNTED) do
          if record.counts[name] then note(record, 'items_' .. name, record.counts[name]) end
        end
      end
    end
  end

  -- Offers a mapped node task that is ready, or whose items have all ended.
  function fan_out.offer(record, comp)
    local counts = record.status == 'running' and fan_out.counts(record) or nil
    if not counts then
      if record.status ~= 'pending' then
        set_state(record, 'ready_at', stamp)
        changed(comp, 0, record, 'queued')
      end
      record.status = 'pending'
    end
    local offers = effects.fan_outs or {}
    effects.fan_outs = offers
    set_state(record, 'nonce', args.nonce .. 'm' .. #offers)
    set(record, 'retry_at', time + limits.fan_out_lease_ms)
    record.comp = comp
    delaying[#delaying + 1] = record
    offers[#offers + 1] = {task_id = record.id, nonce = record.nonce, run_id = comp.run_id, component_id = comp.id,
      plan = comp.plan, index = record.index, total = counts and counts.total or 0,
      losses = counts and counts.failed + counts.cancelled or 0}
  end

  -- Takes back an offer.
  function fan_out.withdraw(record)
    undelay(record)
    set_state(record, 'nonce', '')
  end

  function fan_out.begin(record, comp)
    fan_out.withdraw(record)
    record.status = 'running'
    set_state(record, 'started_at', stamp)
    changed(comp, 0, record, 'running')
  end

  -- Returns the other live inputs of a mapped node, as each item gets them: short values as they are, long ones as `@`.
  local function shared_inputs(record, entry)
    local shared = {}
    local function share(name, value)
      if not value or name == field_of(entry, entry.map.edge) then return end
      table.insert(shared, name)
      table.insert(shared, #value <= limits.inline_bytes and value or '@')
    end
    if entry.fields then
      for i, value in ipairs(stored_all(record, entry.fields)) do share(entry.fields[i], value) end
    else
      -- There are more edges than the plan's node names.
      local before = record.at .. 'in:'
      for _, name in ipairs(call('HKEYS', record.key)) do
        if string.sub(name, 1, #before) == before then
          share(string.sub(name, #record.at + 1), call('HGET', record.key, name))
        end
      end
    end
    return shared
  end

  function fan_out.split(record, comp, items, need)
    fan_out.begin(record, comp)
    record.counts = {total = #items, need = need, begun = 0, completed = 0, failed = 0, cancelled = 0, bytes = 0}
    touched[record] = true
    local shared = shared_inputs(record, node(comp.plan, record.index))
    if #shared > 0 then set(record, 'shared', cmsgpack.pack(shared)) end
    local maps = comp.maps and cmsgpack.unpack(comp.maps) or {}
    maps[#maps + 1] = record.index
    set_eventful(comp, 'maps', cmsgpack.pack(maps))
    in_pieces('RPUSH', base .. 'items:' .. record.id, items)
    later('fill', comp, record.index, 0)
  end

  -- Lets items begin while there is room; returns the offset at which to go on when the budget is used up.
  function WORK.fill(comp, _, index)
    local entry = node(comp.plan, index)
    local record = task(task_of(comp.run, entry.id))
    if not record or record.status ~= 'running' or record.stop or comp.stop or fan_out.counts(record).halt then
      return
    end
    local counts = fan_out.counts(record)
    local room = math.min(counts.total - counts.begun, entry.map.most - open_of(counts))
    if room <= 0 then return end
    if budget <= 0 then return 0 end
    local shared, count = record.shared or stored(record, 'shared'), math.min(room, budget)
    shared = shared and cmsgpack.unpack(shared) or {}
    budget = budget - count
    for _, value in ipairs(call('LPOP', base .. 'items:' .. record.id, count)) do
      local item = create(comp, record.id .. ':' .. string.format('%.0f', counts.begun), entry, index)
      for i = 1, #shared, 2 do set(item, shared[i], shared[i + 1]) end
      set(item, field_of(entry, entry.map.edge), value)
      counts.begun = counts.begun + 1
      touched[record] = true
      enqueue(item, comp)
    end
    if count < room then return 0 end
  end

  local function loss_reason(item, reason)
    if item.status ~= 'failed' or not item.error then return reason or '' end
    local error = cmsgpack.unpack(item.error)
    local text = notices.typed_message(error)
    text = notices.brief(error.code == 'NODE_ERROR' and text or error.code .. ': ' .. text)
    return (error.final or '') ~= '' and text .. ', not tried again: ' .. error.final or text
  end

  local function halt(record, comp, entry, code)
    local counts = record.counts
    local reason = code == 'ITEMS_FAILED' and 'too few items of node "' .. entry.id .. '" can complete'
      or 'the combined results of the items of node "' .. entry.id .. '" are too large'
    counts.code, counts.halt = code, stopping.system_mark(reason)
    later('stop_items', comp, record.index, 0)
  end

  -- Goes on with a mapped node when all items that began have ended, and no other will begin.
  local function conclude_items(record, comp)
    local counts = record.counts
    if record.stop then return finish(record, comp, 'terminated', cmsgpack.unpack(record.stop).reason) end
    -- If the component is being stopped, the stop reaches this node task as well.
    if comp.stop then return end
    if not counts.halt then return fan_out.offer(record, comp) end
    local message
    if counts.code == 'ITEMS_FAILED' then
      message = string.format(
        'at least %.0f of %.0f items must complete; %.0f failed, %.0f cancelled, %.0f never begun; ',
        counts.need, counts.total, counts.failed, counts.cancelled, counts.total - counts.begun)
        .. 'the first is ' .. counts.first
    else
      message = string.format(
        'the results of %.0f items have over %.0f bytes in total: return less data, or a reference to it',
        counts.completed, limits.output_bytes)
    end
    fail(record, comp, {code = counts.code, message = message, type = '', traceback = '', final = ''})
  end

  -- Notes the end of a mapped node's node task; returns true for an item, which only counts for its mapped node.
  function fan_out.ended(item, comp, entry, status, reason)
    local owner, place = item_of(item.id)
    if not owner then
      set_state(item, 'nonce', '')
      call('UNLINK', base .. 'items:' .. item.id)
      return false
    end
    local record = task(owner)
    if not record then return true end
    local counts = fan_out.counts(record)
    touched[record] = true
    if status == 'completed' then
      counts.completed = counts.completed + 1
      for _, output in ipairs(item.outputs) do counts.bytes = counts.bytes + #output[2] end
    else
      local lost = status == 'failed' and 'failed' or 'cancelled'
      counts[lost] = counts[lost] + 1
      counts.first = counts.first or 'item ' .. place .. ' (' .. status .. '): ' .. loss_reason(item, reason)
    end
    if not counts.halt and not record.stop then
      if counts.failed + counts.cancelled > counts.total - counts.need then
        halt(record, comp, entry, 'ITEMS_FAILED')
      elseif counts.bytes > limits.output_bytes then
        halt(record, comp, entry, 'OUTPUT_TOO_LARGE')
      end
    end
    local no_more = counts.begun == counts.total or counts.halt or record.stop or comp.stop
    if no_more and open_of(counts) == 0 then
      conclude_items(record, comp)
    elseif not no_more then
      later('fill', comp, record.index, 0)
    end
    return true
  end

  -- Stops a mapped node task that has been split, along with its items.
  function fan_out.stop(record, mark)
    if record.stop then return end
    local comp = component_of(record)
    set(record, 'stop', mark)
    changed(comp, 0, record, 'stopping')
    if open_of(fan_out.counts(record)) > 0 then return later('stop_items', comp, record.index, 0) end
    fan_out.withdraw(record)
    finish(record, comp, 'terminated', cmsgpack.unpack(mark).reason)
  end

  -- Stops the items that have begun; returns the place at which to go on when the budget is used up.
  function WORK.stop_items(comp, offset, index)
    local record = task(task_of(comp.run, node(comp.plan, index).id))
    if not record or record.status ~= 'running' then return end
    local counts = fan_out.counts(record)
    local mark = record.stop or counts.halt
    local reason = cmsgpack.unpack(mark).reason
    for place = offset, counts.begun - 1 do
      if budget <= 0 then return place end
      budget = budget - 1
      local item = task(record.id .. ':' .. string.format('%.0f', place))
      if item and item.status == 'running' then
        stopping.request(item, mark)
      elseif item and not TERMINAL[item.status] then
        stopping.end_idle(item, comp, reason)
      end
    end
  end
end
