-- Returns when a trigger of a partition is next due, and when a claim next lapses.
-- KEYS: 1 due, 2 claimed
-- args: now_ms
-- Returns {due, lapse, now_us}.
--!include heads

return cmsgpack.pack(survey(KEYS[1], KEYS[2], now(args.now_ms)))
