--!include suspension
-- Retries: after a failed attempt a node task waits in `delayed` until the next one is due, then it is queued.
local retries = {}
do
  -- Returns how long a node task waits after its failures, computed as in domain/retry.py.
  local function delay_of(policy, id, failures)
    local delay = policy.initial_ms
    for _ = 2, failures do
      if delay >= policy.max_ms or policy.factor == 1 then break end
      delay = delay * policy.factor
    end
    local drawn = tonumber(string.sub(redis.sha1hex(id .. ':' .. failures), 1, 8), 16) / 4294967296
    return math.floor(math.min(delay, policy.max_ms) * (1 - policy.jitter * drawn))
  end

  -- Returns why no further attempt follows a failed one, or nil; `retry_request` is what the attempt itself asked for.
  local function final_reason(record, comp, policy, error, retry_request, wait)
    if retry_request and retry_request.none then return 'the node asked not to be retried' end
    for _, name in ipairs(policy.non_retryable) do
      if name == error.type or name == error.code then return name .. ' is not retried' end
    end
    if record.failures >= policy.attempts then return 'all ' .. policy.attempts .. ' attempts failed' end
    if record.total_at and tonumber(record.total_at) <= time + wait then
      return 'the total time would end before the next attempt could begin'
    end
    if not (retry_request and retry_request.after_ms) then return retry_budget.refuse(comp) end
  end

  -- Ends an attempt that did not succeed: the node task is delayed, or fails for good.
  function retries.fail(record, comp, error, retry_request)
    local own = node(comp.plan, record.index).retry
    local policy = not record.stop and not comp.stop and own
    -- A node without a policy has failed at most this once.
    set(record, 'failures', (own and tonumber(read_rest(record).failures) or 0) + 1)
    if policy then
      dead_letters.add_to_history(record, error.code)
      local wait = math.max(1, retry_request and retry_request.after_ms or delay_of(policy, record.id, record.failures))
      local final = final_reason(record, comp, policy, error, retry_request, wait)
      if not final then
        set(record, 'error', cmsgpack.pack(error))
        set(record, 'settled', record.nonce)
        set_state(record, 'nonce', '')
        set(record, 'retry_at', time + wait)
        changed(comp, record.status == 'running' and -1 or 0, record, 'retrying')
        logs.add_retry(record, wait)
        record.status, record.comp = 'pending', comp
        delaying[#delaying + 1] = record
        return
      end
      error.final = final
      dead_letters.bury(record, comp, error)
    elseif policy == nil and retry_request and retry_request.after_ms then
      error.final = 'it asked for another attempt, but may have only one: give it a "retry"'
    end
    fail(record, comp, error)
  end

  -- Whether this is the nonce of the latest attempt that failed with another to follow, or that was suspended.
  function retries.has_failed(record, nonce) return read_rest(record).settled == nonce end
end

-- Queues delayed node tasks that are due; returns the time in ms until the next one is due, or nil, and whether more
-- are due already.
local function wake_delayed()
  local DUE_AT_ONCE = 250
  local head = index_call('ZRANGE', base .. 'delayed', 0, 0, 'WITHSCORES')[2]
  if not head then return end
  if tonumber(head) > time then return tonumber(head) - time, false end
  local most = math.max(0, math.min(budget, DUE_AT_ONCE))
  local due = call('ZRANGE', base .. 'delayed', 0, most, 'WITHSCORES')
  for at = 1, #due, 2 do
    local left = tonumber(due[at + 1]) - time
    if left > 0 or at > 2 * most then return math.max(0, left), left <= 0 end
    budget = budget - 1
    local limit = string.match(due[at], '^|(.+)$')
    if limit then
      -- Not by `remove`: this script may add it again at its end.
      call('ZREM', base .. 'delayed', due[at])
      freed[limit] = (freed[limit] or 0) + 1
    else
      remove('delayed', due[at])
    end
    local record = not limit and task(due[at])
    local open = record and not TERMINAL[record.status] and (record.status ~= 'running' or not record.worker_id)
    local comp = open and component_of(record)
    -- An entry that this script has taken out is still in the set, and its node task may have been delayed anew.
    if comp and tonumber(read_rest(record).retry_at) == tonumber(due[at + 1]) then
      set(record, 'retry_at', 0)
      enqueue(record, comp)
    end
  end
end

-- Adds what this script has delayed to the set, unless it has ended meanwhile; returns the time until the first is due.
local function write_delayed()
  local first
  for limit, at in pairs(slots.paced) do
    index_call('ZADD', base .. 'delayed', 'LT', at, '|' .. limit)
    first = math.min(first or at, at)
  end
  for _, record in ipairs(delaying) do
    if not TERMINAL[record.status] and record.retry_at > time then
      put('delayed', record.id, record.retry_at)
      first = math.min(first or record.retry_at, record.retry_at)
    end
  end
  return first and first - time
end
