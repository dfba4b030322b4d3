--!include ad_hoc
-- The retry budget of a flow: how many further attempts it may have depends on how many attempts began, counted in
-- buckets of five seconds over the current one and the minute before it. Only nodes with a retry policy are counted,
-- and no attempts after a time that the node itself asked for. Runs outside any flow have no budget.
local retry_budget = {}
do
  local call, BUCKET, BUCKETS = index_call, 5000, 13
  local spenders = {}
  fresh(function() if next(spenders) then spenders = {} end end)

  local function spender_of(comp)
    local flow = string.match(comp.run, '^[^:]+')
    if not spenders[flow] then
      spenders[flow] = {key = base .. 'retries:' .. flow, flow = flow, begun = 0, retried = 0}
    end
    return spenders[flow]
  end

  function retry_budget.count(comp)
    if comp.partition == NO_PARTITION then return end
    local spender = spender_of(comp)
    spender.begun = spender.begun + 1
  end

  -- Returns what earlier scripts counted: attempts begun (`b`) and granted again (`r`); forgets buckets that are over.
  local function spent(spender)
    if not spender.before then
      local before, expired, oldest = {b = 0, r = 0}, {}, math.floor(time / BUCKET) - BUCKETS
      local counts = call('HGETALL', spender.key)
      for at = 1, #counts, 2 do
        local kind, bucket = string.sub(counts[at], 1, 1), tonumber(string.sub(counts[at], 2))
        if bucket > oldest then
          before[kind] = before[kind] + tonumber(counts[at + 1])
        else
          expired[#expired + 1] = counts[at]
        end
      end
      if #expired > 0 then call('HDEL', spender.key, unpack(expired)) end
      spender.before = before
    end
    return spender.before
  end

  -- Grants a further attempt, counts it and returns nil; or returns why not.
  function retry_budget.refuse(comp)
    if comp.partition == NO_PARTITION then return end
    local spender = spender_of(comp)
    local before = spent(spender)
    local most = math.max(limits.retries, math.floor((before.b + spender.begun) * limits.retry_percent / 100))
    if before.r + spender.retried >= most then
      return 'RETRY_BUDGET_EXHAUSTED: flow "' .. spender.flow .. '" has used all ' .. most .. ' retries of this minute'
    end
    spender.retried = spender.retried + 1
  end

  function retry_budget.write()
    if not next(spenders) then return end
    local bucket = string.format('%.0f', math.floor(time / BUCKET))
    for _, spender in pairs(spenders) do
      if spender.begun > 0 then call('HINCRBY', spender.key, 'b' .. bucket, spender.begun) end
      if spender.retried > 0 then call('HINCRBY', spender.key, 'r' .. bucket, spender.retried) end
      call('PEXPIRE', spender.key, BUCKET * BUCKETS)
    end
  end
end
