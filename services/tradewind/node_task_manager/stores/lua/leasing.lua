--!include sorted_sets
-- Leases that end and begin, written in the same way: each is in `inflight` and in the list of its worker.
local leasing = {}
do
  local ended, begun
  fresh(function() ended, begun = {}, {} end)

  function leasing.begin(record, till)
    local items = begun[record.worker_id]
    if not items then items = {} begun[record.worker_id] = items end
    local n = #items
    items[n + 1] = till
    items[n + 2] = record.id
  end

  -- Ends a lease, even one that this script has begun or has moved to the end of a stop's grace.
  function leasing.finish(record)
    local id, worker = record.id, record.worker_id
    if begun[worker] then withdraw(begun[worker], id) end
    if added.inflight then withdraw(added.inflight, id) end
    local ids = ended[worker]
    if not ids then ids = {} ended[worker] = ids end
    ids[#ids + 1] = id
  end

  local function write(command, by_worker)
    local worker_id, all = next(by_worker)
    if not worker_id then return end
    if next(by_worker, worker_id) then
      all = {}
      for _, items in pairs(by_worker) do
        for i = 1, #items do all[#all + 1] = items[i] end
      end
    end
    in_pieces(command, base .. 'inflight', all)
    for worker, items in pairs(by_worker) do in_pieces(command, base .. 'worker_tasks:' .. worker, items) end
  end

  function leasing.write()
    write('ZREM', ended)
    write('ZADD', begun)
  end
end
