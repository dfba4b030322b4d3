-- What every script of a shard has. Uses args: base (key prefix with its tag); of scripts that need them, now (ms, 0
-- for the server's time) and limits (JSON, the fields of Limits and the bounds of the system's configuration).
local call = redis.call
local base, time, stamp, budget, effects
local limits = {}
do
  -- The limits are kept from script to script, with their text; a script that needs none leaves them as they are.
  local limits_text
  fresh(function()
    if args.limits and args.limits ~= limits_text then
      limits, limits_text = cjson.decode(args.limits), args.limits
    end
    base, time = args.base, args.now and now(args.now)
    stamp = time and string.format('%.0f', time)
    budget = limits.records_per_script
    effects = {assignments = {}, results = {}, todo = 0}
  end)
end

-- Small numbers as text, kept from script to script: Lua takes longer to write a number than to join two texts.
local digits = setmetatable({}, {__index = function(known, number)
  known[number] = string.format('%d', number)
  return known[number]
end})

-- Does as redis.call with a key that only this index or queue may have. What somebody has put in place of it is removed
-- first: it must not keep the node tasks of others from going on. Doctors then put back what the records tell. Not for
-- records: there it would cost a tenth of each command.
local index_call
do
  local pcall = redis.pcall
  function index_call(verb, key, ...)
    local reply = pcall(verb, key, ...)
    if not of_another_type(reply) then return reply end
    call('DEL', key)
    call('PUBLISH', base .. 'wake', 'd:' .. key)
    return call(verb, key, ...)
  end
end

local function in_pieces(command, key, items)
  local n = #items
  if n > 0 and n <= 1000 then return index_call(command, key, unpack(items)) end
  for first = 1, n, 1000 do index_call(command, key, unpack(items, first, math.min(first + 999, n))) end
end

-- Adds to a stream that people read; returns whether it is one. What somebody has put in place of it must not keep node
-- tasks from going on.
local function add_to_stream(key, ...) return not of_another_type(redis.pcall('XADD', key, ...)) end
