-- Reads of some of a partition's flows what lists choose by, and how large their definitions are.
-- KEYS: 1 owner. args: base, epoch (0), now, after (flow id to go on after, "" for the first), flows (how many).
-- Returns {outlines {flow_id, user_id, status, labels, created_at, bytes of definition and structure}, after (flow id
-- to go on after, "" if no flows are left)}. Fails if the index of flows is of another type.
--!no-writes
--!include partition
local outlines, after = {}, args.after
local index = base .. 'flows'
local ids = redis.pcall('ZRANGE', index, after == '' and '-' or '(' .. after, '+', 'BYLEX', 'LIMIT', 0, args.flows)
if of_another_type(ids) then error({err = 'WRONGTYPE in the place of ' .. index}) end
for _, flow_id in ipairs(ids) do
  local key = flow_key(flow_id)
  -- A key of another type has none of these, and so can be told from a flow.
  local known = redis.pcall('HMGET', key, 'user_id', 'status', 'labels', 'created_at')
  if known[1] or call('EXISTS', key) == 1 then
    local size = known.err and 0 or call('HSTRLEN', key, 'config') + call('HSTRLEN', key, 'structure')
    outlines[#outlines + 1] = {flow_id, plain(known[1] or ''), plain(known[2] or ''), plain(known[3] or ''),
      tonumber(known[4]) or 0, size}
  end
end
return cmsgpack.pack({outlines, #ids == args.flows and ids[#ids] or ''})
