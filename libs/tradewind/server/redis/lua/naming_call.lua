-- Does as redis.call, and names the key in the error when it fails: it may be a key of another type.
local function naming_call(verb, key, ...)
  local reply = redis.pcall(verb, key, ...)
  if type(reply) == 'table' and reply.err then error({err = key .. ': ' .. reply.err}) end
  return reply
end
