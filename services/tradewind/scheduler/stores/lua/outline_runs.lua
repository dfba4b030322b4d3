-- Reads what lists and jobs choose runs of a flow by.
-- KEYS: 1 owner. args: base, epoch (0), now, flow_id, runs ({cycle, run} of each).
-- Returns for each run {status ("" at first), start_time ("" when the run is not on record), stop_by ("" when nobody
-- has asked it to stop)}; false for a key of another type.
--!no-writes
--!include partition
local outlines = {}
for at, name in ipairs(args.runs) do
  local known = redis.pcall('HMGET', run_key(args.flow_id, name[1], name[2]), 'status', 'start_time', 'stop_by')
  outlines[at] = not known.err and {plain(known[1] or ''), plain(known[2] or ''), plain(known[3] or '')}
end
return cmsgpack.pack(outlines)
