--!include firings
--!include pause_text
local REMEMBERED, RECENT = 24 * 3600 * 1000, 50

-- Whether one of the newest lines of the ledger is that of the same event at another time: a trigger service whose
-- store has lost that an event came takes it for a new one. `mark` follows the last planned time in such a line.
local function met_before(key, due, mark)
  for _, line in ipairs(call('ZREVRANGEBYSCORE', key .. ':firings', '+inf', due - REMEMBERED, 'LIMIT', 0, RECENT)) do
    -- Most lines do not have it at all, which takes far less time to say.
    if string.find(line, mark, 1, true) and string.match(line, '^%d+ %a+ %-?%d+ %d+ %S+ %d+ %d+ %d+(@%S*)') == mark then
      return true
    end
  end
  return false
end

-- Settles an event that begins no cycle, whatever runs; returns whether it did. `event` is {its id as a line of the
-- ledger has it, outcome and reason if no cycle is to begin, else ""}.
local function settle_event(key, status, due, schedule_epoch, same_revision, event)
  -- An event that was met before keeps its outcome.
  if firings.of(key, due) then return false end
  local oldest = call('ZRANGE', key .. ':firings', -FIRINGS, -FIRINGS, 'WITHSCORES')
  -- An event older than all lines of a full ledger may have been in it before.
  if oldest[2] and due < tonumber(oldest[2]) or met_before(key, due, event[1]) then return true end
  local outcome, reason = event[2], same_revision and event[3] or ''
  local known = call('HMGET', key, 'started_epoch', 'paused_by', 'note', 'next_execution')
  if schedule_epoch < tonumber(known[1] or 0) then
    outcome, reason = 'dropped', 'the flow was stopped meanwhile'
  elseif status == 'paused' then
    outcome, reason = 'skipped', pause_text(known[2], known[3])
  elseif status ~= 'running' then
    outcome, reason = 'skipped', 'the flow is ' .. status
  elseif known[4] == '0' then
    outcome, reason = 'skipped', 'the schedule of the flow is over'
  end
  if reason == '' then return false end
  firings.settle(key, due, outcome, reason, due .. event[1])
  return true
end
