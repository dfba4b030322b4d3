-- Cancels a backfill: no more of its cycles begin.
-- KEYS: 1 owner, 2 hash of the flow.
-- args: base, epoch (0), now, flow_id, backfill_id, reason.
-- Returns whether it was under way.
--!include backfilling
return cmsgpack.pack(backfills.cancel(KEYS[2], args.flow_id, args.backfill_id, args.reason))
