-- Removes a batch that has ended: from then on it is gone for everybody. Its items stay in lists of node tasks, from
-- which unlist_items takes them.
-- KEYS[1] any key of the shard. args: base, now, limits, run, user_id.
-- Returns {outcome, items}: `unknown` when the user has no such batch, `open` while an item has not ended, or
-- `deleted`; and how many items it had.
--!allow-oom
--!include todo
local run = args.run
local comp = component(run, '0')
if not comp or comp.user_id ~= args.user_id then return cmsgpack.pack({'unknown', 0}) end
if comp.status ~= 'finished' then return cmsgpack.pack({'open', comp.nodes}) end

call('UNLINK', comp.key, base .. 'plan:' .. comp.plan, base .. 'logs:' .. run, base .. 'told:' .. run,
  base .. 'stop:' .. run, base .. 'stop:' .. run .. ':0', base .. 'notified:' .. comp.user_id .. ':given_up:' .. run)
index_call('ZREM', base .. user_runs.list(comp.user_id, run), run)
index_call('ZREM', base .. 'ended_runs', comp.user_id .. ':' .. run)
-- Work that is left for it would be done for a batch of its name that comes later.
for _, text in ipairs(index_call('LRANGE', base .. 'todo', 0, -1)) do
  if select(2, todo.facts(text)) == run then call('LREM', base .. 'todo', 1, text) end
end
return cmsgpack.pack({'deleted', comp.nodes})
