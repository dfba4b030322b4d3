--!include claim
-- Attempts that a worker began by itself, with the output of a node that it has just run.
local eager = {}
do
  -- Whether `source` feeds the only input of a node task, and has emitted it.
  local function feeds(source, record, comp, entry)
    if entry.inputs ~= 1 or run_of(source.id) ~= comp.run or source.component_id ~= comp.id then return false end
    for _, edge in ipairs(node(comp.plan, source.index).out) do
      if edge[2] == record.index then return source.status == 'completed' and emitted(source, edge[1]) end
    end
    return false
  end

  -- Takes a node task out of its queue, whether this script or an earlier one put it there.
  local function leave_queue(record, entry, comp)
    local name = entry.type .. ':' .. comp.user_id
    local queue = queues[name]
    if not queue or not withdraw(queue.added, record.id) then
      dequeue(record, comp)
    elseif #queue.added + #queue.removed == 0 and not queue.rejoins then
      queues[name] = nil
    end
  end

  -- Returns why a node task may not be begun by its worker, or nil. If limits are set, everything waits for its turn.
  local function refusal(source, record, comp)
    local entry = record.entry or node(comp.plan, record.index)
    if entry.map or entry.wait then return 'this node does not run on workers' end
    if record.stop or comp.stop then return 'it is being stopped' end
    if not feeds(source, record, comp, entry) then
      return 'it does not follow the node task that was reported before it'
    end
    if limits.bounded or slots.own_limits(entry, comp) then return 'limits are set, so it has to wait for its turn' end
  end

  -- Begins a ready node task that has had no attempt; returns why not, or nil and when its lease lapses. It takes no
  -- slot, as no limits are set.
  function eager.begin(worker_id, source, record, comp, nonce)
    local reason = refusal(source, record, comp)
    if reason then return reason end
    local entry = record.entry or node(comp.plan, record.index)
    leave_queue(record, entry, comp)
    record.status, record.attempt, record.nonce, record.worker_id = 'running', 1, nonce, worker_id
    record.noted, record.entry = true, entry
    local till
    record.started_at, record.close_at, till = clocks.begin(record, entry, comp, 1)
    changed(comp, 1, record, 'running')
    if entry.retry then retry_budget.count(comp) end
    return nil, till
  end
end
