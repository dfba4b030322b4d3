-- Creates runs: their components, and node tasks for their entry nodes; other node tasks are created as signals arrive.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies, count, runs as a flat sequence: run,
-- flow_id, run_id, user_id, partition (-1: outside any flow, flow_id and cycle mean nothing), inputs_json, traceparent,
-- planned_ms, begun_ms, node_type, how many components, the id and digest of each, and false or {keep_cycles,
-- keep_for_ms (0: as the limits say), source (number of the run whose results a rerun keeps, or -1), source_id (its
-- run_id), kept {[component id, places of nodes]}, withheld (ids of components that release_components begins)}.
-- Returns {results {outcome, unknown_plans, existing_run_id}, effects}.
--!include submission
local given, at, runs, results, usual = args.runs, 1, {}, {}, {0, 0, -1, '', {}, {}}
for i = 1, args.count do
  local components, last = {}, at + 10 + 2 * given[at + 10]
  for place = at + 11, last, 2 do components[#components + 1] = {given[place], given[place + 1]} end
  local rest = given[last + 1] or usual
  runs[i] = {run = given[at], flow_id = given[at + 1], run_id = given[at + 2], user_id = given[at + 3], partition = given[at + 4],
    inputs_json = given[at + 5], traceparent = given[at + 6], planned_ms = given[at + 7], begun_ms = given[at + 8],
    node_type = given[at + 9], components = components, keep_cycles = rest[1], keep_for_ms = rest[2], source = rest[3],
    source_id = rest[4], kept = rest[5], withheld = rest[6]}
  at = last + 2
end
submission.open()
submission.load_obstacles(runs)
for i, run in ipairs(runs) do results[i] = submission.refusal(run) or submission.begin(run) end
submission.persist_plans()
return cmsgpack.pack({results = results, effects = conclude()})
