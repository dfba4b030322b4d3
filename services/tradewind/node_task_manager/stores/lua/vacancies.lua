--!include sessions
-- Vacancies: how many more node tasks of which types each worker has room for. Uses args: vacancies.
local vacancies = {}

-- Returns the vacancies of workers' latest sessions, by node type.
function vacancies.by_type()
  local takers = {}
  for _, vacancy in ipairs(args.vacancies) do
    if sessions.is_latest(vacancy.worker_id, vacancy.session) then
      for _, node_type in ipairs(vacancy.node_types) do
        local taking = takers[node_type]
        if taking then taking[#taking + 1] = vacancy else takers[node_type] = {vacancy} end
      end
    else
      effects.stale_workers = effects.stale_workers or {}
      table.insert(effects.stale_workers, vacancy.worker_id)
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
