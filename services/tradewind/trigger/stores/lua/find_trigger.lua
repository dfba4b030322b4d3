-- Reads one trigger. A flow's trigger that waits for events, but is not among those that receive them, counts as lost:
-- no index lists the triggers of flows, so the scheduler's doctor finds it by this.
-- KEYS: 1 the trigger's hash
-- args: now_ms, id, queue, events (beginning of keys)
-- Returns {record}, or {} when there is none.
--!no-writes
--!include record

local t = read(KEYS[1], args.id, now(args.now_ms))
return cmsgpack.pack({ t and (args.queue ~= '' or listens(t)) and reply(t) or nil })
