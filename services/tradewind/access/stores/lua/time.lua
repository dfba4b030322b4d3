-- The time of the current run, in ms; args: now_ms.
local time
fresh(function() time = now(args.now_ms) end)
