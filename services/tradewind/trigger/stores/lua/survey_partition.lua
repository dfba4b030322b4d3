-- Returns when a trigger of a partition is next due, and when a claim next lapses; absent in an index of another type.
-- KEYS: 1 due, 2 claimed
-- args: now_ms
-- Returns {due, lapse, now_us}.
--!include heads
return cmsgpack.pack(survey(head(KEYS[1], note), head(KEYS[2], note), now(args.now_ms)))
