--!include shard
-- Plans: the nodes and edges of components.

-- Lists of a plan (ids, entries, edges out of a node) are stored in pieces of this many, as redis_plans.py writes them.
local PIECE = 500
local stored_plans = {}
local use_edition, node, piece_of

-- Whether a plan is on record: the store may have lost it while components use it, or somebody put another type there.
function stored_plans.has(plan) return redis.pcall('HEXISTS', base .. 'plan:' .. plan, 'facts') == 1 end

do
  -- Stands for every node of a plan that is not on record, which nothing follows from; `settle` ends its component.
  local LOST = {id = '', type = '', run_if = 'all_succeeded', inputs = 0, outputs = 0, into = {}, fields = {}, out = {},
    start = 0, close = 0, lost = true}
  -- Kept from script to script: nodes by plan and place, one edition of each plan.
  local MAX_KNOWN = 5000
  local plans, editions, known_nodes = {}, {}, 0
  local pieces = {}
  fresh(function()
    if known_nodes > MAX_KNOWN then plans, editions, known_nodes = {}, {}, 0 end
    if next(pieces) then pieces = {} end
    -- The plans that this script has found missing.
    if not stored_plans.lost or next(stored_plans.lost) then stored_plans.lost = {} end
  end)

  -- Returns what a field of a plan holds, nil when the plan is not on record.
  local function read(plan, field)
    local text = redis.pcall('HGET', base .. 'plan:' .. plan, field)
    if text and not of_another_type(text) then return cmsgpack.unpack(text) end
    stored_plans.lost[plan] = true
  end

  function stored_plans.facts(plan) return read(plan, 'facts') end

  function use_edition(plan, edition)
    if editions[plan] ~= edition then plans[plan], editions[plan] = nil, edition end
  end

  -- Returns a node of a plan: id, type, run_if, inputs and outputs (how many edges), into (places of the edges, absent
  -- when there are more than a piece of them) and fields (that hold their values: `input` for a single edge, else
  -- `in:<edge>`), out (the first piece of {handle, target, field of the target}), start, close (ms); `lost` when the
  -- plan is not on record.
  function node(plan, index)
    local known = plans[plan]
    if not known then known = {} plans[plan] = known end
    local entry = known[index]
    if not entry then
      entry = read(plan, 'n:' .. index)
      if not entry then return LOST end
      known[index], known_nodes = entry, known_nodes + 1
    end
    return entry
  end

  -- Returns the piece of a plan's list (`ids`, `entries`, `out:<place>`) that holds place `at` (counted from 0), and
  -- the number to subtract from a place to find its item in the piece; nil when the plan is not on record.
  function piece_of(plan, list, at)
    local number = at < PIECE and 0 or math.floor(at / PIECE)
    local field, known = list .. ':' .. digits[number], pieces[plan]
    if not known then known = {} pieces[plan] = known end
    local piece = known[field]
    if not piece then
      piece = read(plan, field)
      known[field] = piece
    end
    return piece, number * PIECE - 1
  end
end

-- Returns the field that holds the value of an edge into a node.
local function field_of(entry, edge) return entry.inputs == 1 and entry.fields[1] or 'in:' .. edge end
