--!include sessions
-- Vacancies: how many more node tasks of which types each worker has room for. Uses args: vacancies, by the types that
-- they offer: {node types, {worker_id, session, credits, capacity} each} each.
local vacancies = {}

-- Returns the vacancies of workers' latest sessions, by node type. Types that no others offer share a table.
function vacancies.by_type()
  local takers, mixed = {}, {}
  for _, kind in ipairs(args.vacancies) do
    local open = {}
    for _, vacancy in ipairs(kind[2]) do
      if sessions.is_latest(vacancy.worker_id, vacancy.session) then
        open[#open + 1] = vacancy
      else
        effects.stale_workers = effects.stale_workers or {}
        table.insert(effects.stale_workers, vacancy.worker_id)
      end
    end
    for _, node_type in ipairs(open[1] and kind[1] or {}) do
      local taking = takers[node_type]
      if not taking then
        takers[node_type] = open
      else
        if not mixed[node_type] then
          mixed[node_type] = {unpack(taking)}
          takers[node_type] = mixed[node_type]
        end
        for _, vacancy in ipairs(open) do table.insert(takers[node_type], vacancy) end
      end
    end
  end
  return takers
end

-- Returns the one of the least loaded worker: that with the greatest part of its capacity free.
function vacancies.roomiest(open)
  if #open == 1 then return open[1] end
  local best, most = nil, 0
  for _, vacancy in ipairs(open) do
    local free = vacancy.credits / vacancy.capacity
    if free > most then best, most = vacancy, free end
  end
  return best
end

-- Returns how many node tasks fit into all of them.
function vacancies.room(open)
  local sum = 0
  for _, vacancy in ipairs(open) do sum = sum + vacancy.credits end
  return sum
end
