--!include claim
-- Takes node tasks from a worker and queues them again.

-- Puts a running node task back; `lost` counts against it, and too many losses fail it.
local function give_back(record, lost)
  local comp = component_of(record)
  release_lease(record)
  set_state(record, 'nonce', '')
  if not comp then return end
  if record.stop then
    return finish(record, comp, 'terminated', cmsgpack.unpack(record.stop).reason)
  end
  if lost then
    effects.lost = (effects.lost or 0) + 1
    set(record, 'lost', (tonumber(read_rest(record).lost) or 0) + 1)
    dead_letters.add_to_history(record, 'WORKER_LOST')
    local often = record.lost >= limits.losses
    local message = often and 'the worker was lost ' .. record.lost .. ' times while it ran; the last one was '
      .. record.worker_id
      or 'worker ' .. record.worker_id .. ' was lost while it ran; it will run again'
    local error = {code = 'WORKER_LOST', message = message}
    logs.add_error(record, error)
    if often then
      dead_letters.bury(record, comp, error)
      return fail(record, comp, error)
    end
  end
  enqueue(record, comp)
end

-- Gives back what a worker holds, except the node tasks in the set `kept`; returns true if some is left for the next
-- call.
local function give_back_all(worker_id, kept, lost)
  local left = 500
  for _, id in ipairs(index_call('ZRANGE', base .. 'worker_tasks:' .. worker_id, 0, -1)) do
    if not kept[id] then
      if left == 0 then return true end
      left = left - 1
      local record = task(id)
      if record and record.status == 'running' and record.worker_id == worker_id then
        give_back(record, lost)
      else
        remove('worker_tasks:' .. worker_id, id)
      end
    end
  end
  return false
end

local function set_of(items)
  local members = {}
  for _, item in ipairs(items) do members[item] = true end
  return members
end
