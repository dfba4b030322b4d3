-- Keys of another type, which somebody has put in the place of this service's.

-- Does as redis.call with a key that the script cannot do without; the error names one of another type.
local function need(verb, key, ...)
  local reply = redis.pcall(verb, key, ...)
  if not of_another_type(reply) then return reply end
  error({ err = 'WRONGTYPE in the place of ' .. key })
end

-- Ends a script before it has changed anything when one of the keys is no sorted set.
local function need_indexes(...)
  for _, key in ipairs({ ... }) do need('ZCARD', key) end
end

-- Does as redis.call with a key that is only there to be looked at. One of another type, which the doctor removes,
-- holds up no trigger: nothing is done, and nil returned.
local function note(verb, key, ...)
  local reply = redis.pcall(verb, key, ...)
  if not of_another_type(reply) then return reply end
end
