-- Creates runs: their components, and node tasks for their entry nodes; other node tasks are created as signals arrive.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, count, runs as a flat sequence: run,
-- flow_id, run_id, user_id, partition (-1: outside any flow, flow_id and cycle mean nothing), inputs_json, traceparent,
-- planned_ms, begun_ms, node_type, how many components, the id and digest of each, and false or {keep_cycles,
-- keep_for_ms (0: as the limits say), source (number of the run whose results a rerun keeps, or -1), source_id (its
-- run_id), kept {[component id, places of nodes]}, withheld (ids of components that release_components begins)}.
-- Returns {results {outcome, unknown_plans, existing_run_id}, effects}.
--!include submission
local given, at, runs, results = args.runs, 1, {}, {}
local USUAL = {keep_cycles = 0, keep_for_ms = 0, source = -1, source_id = '', kept = {}, withheld = {}}
for i = 1, args.count do
  local parts, last = {}, at + 10 + 2 * given[at + 10]
  for place = at + 11, last do parts[place - at - 10] = given[place] end
  local rare = given[last + 1]
  -- Most runs share a table of what few need, so that their own tables stay small.
  runs[i] = {run = given[at], key = base .. 'run:' .. given[at], flow_id = given[at + 1], run_id = given[at + 2],
    user_id = given[at + 3], partition = given[at + 4], inputs_json = given[at + 5], traceparent = given[at + 6],
    planned_ms = given[at + 7], begun_ms = given[at + 8], node_type = given[at + 9], parts = parts,
    rare = rare and {keep_cycles = rare[1], keep_for_ms = rare[2], source = rare[3], source_id = rare[4],
      kept = rare[5], withheld = rare[6]} or USUAL}
  at = last + 2
end
submission.open()
submission.load_obstacles(runs)
for i = 1, args.count do results[i] = submission.refusal(runs[i]) or submission.begin(runs[i]) end
submission.close()
return cmsgpack.pack({results = results, effects = conclude()})
