-- Counts node tasks by type and user. KEYS[1] any key of the shard. args: base, task_ids.
-- Returns {type, user, count} each; node tasks without a record, component or plan are left out.
--!no-writes
--!include records
local known, listed = {}, {}

-- Returns the line of a type and user.
local function line_of(node_type, user)
  local name = node_type .. ':' .. user
  if not known[name] then
    known[name] = {node_type, user, 0}
    listed[#listed + 1] = known[name]
  end
  return known[name]
end

-- Reads no more of a record than its state up to its place in the plan: there may be very many.
for _, id in ipairs(args.task_ids) do
  local run = run_of(id)
  local state = run and call('HGET', base .. 'run:' .. run, place_of(id, run) .. 'state')
  if state then
    local _, _, component_id, index = cmsgpack.unpack_limit(state, 3)
    local comp = component(run, component_id)
    local found, entry = pcall(node, comp and comp.plan or '', index)
    if found then
      local line = line_of(entry.type, comp.user_id)
      line[3] = line[3] + 1
    end
  end
end
return cmsgpack.pack(listed)
