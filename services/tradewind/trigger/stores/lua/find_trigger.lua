-- Reads one trigger.
-- KEYS: 1 the trigger's hash
-- args: now_ms, id
-- Returns {record}, or {} when there is none.
--!include record

local t = read(KEYS[1], args.id, now(args.now_ms))
return cmsgpack.pack({ t and reply(t) or nil })
