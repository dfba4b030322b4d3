--!include rates
-- Counts a user's admitted calls to an endpoint in a sliding window. KEYS: the times of the admitted calls.
-- args: now_ms, count, period_ms, calls (how many calls at once).
-- Returns 0 when the calls are admitted, else the milliseconds until they would be.
return cmsgpack.pack(admit(KEYS[1], args.count, args.period_ms, args.calls))
