-- Shared by the scripts that end or prolong claims in bulk.
-- KEYS: 1 due, 2 claimed, 3 receiver, 4 firings, 5 dead
-- args: now_ms, prefix, removed and events (beginnings of keys), all, channel, queue, session, policy, items = {{id,
--   token, and what the script needs for each}}
--!include record
--!include endings

-- Calls `settle` with the trigger of each item, the item and the time; it returns the trigger's new place in `due`, if
-- it has one. Wakes the partition's receiver when something is due earlier than before, unless that is the caller.
-- Returns the reply {lost = tokens of void claims, due, lapse}.
local function settle_claims(settle)
  need_indexes(KEYS[2])
  local now_ms, former = now(args.now_ms), head(KEYS[1])
  local session = need('HGET', KEYS[3], 'session')
  local lost, earliest = {}, nil
  for _, item in ipairs(args.items) do
    local id, token = item[1], item[2]
    local t = read(args.prefix .. id, id, now_ms)
    if t and t.status == 'claimed' and t.token == token then
      earliest = earlier(earliest, settle(t, item, now_ms))
    else
      lost[#lost + 1] = token
    end
  end
  if earliest and session ~= args.session then
    wake(args.channel, former, earliest)
  end
  return { lost = lost, due = head(KEYS[1]), lapse = head(KEYS[2]) }
end
