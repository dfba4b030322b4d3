--!include partition
-- What is answered to a wish for a cycle; `more` is what few answers tell.
local function answer(outcome, revision, more)
  more = more or {}
  return {outcome, revision or 0, more.cycle or -1, 0, 0, more.next_at or 0, '', more.run or 0, more.run_id or '',
    more.stopping or false}
end

-- What was answered to a request before, nil when nothing was.
local function remembered(first, payload, revision)
  if not first then return nil end
  local hash, cycle, run, id = string.match(first, '^(%S+) (%d+) (%d+) (%S+)$')
  if hash ~= payload then return answer('reused', revision) end
  return answer('duplicate', revision, {cycle = tonumber(cycle), run = tonumber(run), run_id = id})
end

-- The answer to a wish that begins nothing now; with a request it may have begun something before.
local function refusal(outcome, revision, request, payload, more)
  return request ~= '' and remembered(call('GET', base .. 'request:' .. request), payload, revision)
    or answer(outcome, revision, more)
end
