--!include partition
-- Returns an answer to a request for a cycle; `more` holds fields that few answers need.
local function answer(outcome, revision, more)
  more = more or {}
  return {outcome, revision or 0, more.cycle or -1, 0, 0, more.next_at or 0, '', more.run or 0, more.run_id or '',
    more.stopping or false}
end

-- Returns the answer to a request that was answered before, nil when it was not.
local function remembered(first, payload, revision)
  if not first then return nil end
  local hash, cycle, run, id = string.match(first, '^(%S+) (%d+) (%d+) (%S+)$')
  if hash ~= payload then return answer('reused', revision) end
  return answer('duplicate', revision, {cycle = tonumber(cycle), run = tonumber(run), run_id = id})
end

-- Returns the answer when nothing begins now; an earlier call with the same request id may have begun a cycle.
local function refusal(outcome, revision, request, payload, more)
  return request ~= '' and remembered(call('GET', base .. 'request:' .. request), payload, revision)
    or answer(outcome, revision, more)
end
