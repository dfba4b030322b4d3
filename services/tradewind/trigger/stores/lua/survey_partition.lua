-- Returns when a trigger of a partition is next due, and when a claim next lapses; absent in an index of another type.
-- KEYS: 1 due, 2 claimed
-- args: now_ms
-- Returns {due, lapse, now_us}.
--!include heads

local function head_of_any(key) return note('ZCARD', key) and head(key) end

return cmsgpack.pack(survey(head_of_any(KEYS[1]), head_of_any(KEYS[2]), now(args.now_ms)))
