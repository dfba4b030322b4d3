-- Writes the system's configuration, unless another one has been written since.
-- KEYS[1] system:config, KEYS[2] user_weights. args: expected (the version to be replaced, -1 for any older one),
-- version, body (JSON), weights {user, weight, ...}. Returns whether it was written.
local call = redis.call
local version = tonumber(call('HGET', KEYS[1], 'version') or 0)
if args.expected >= 0 and version ~= args.expected or version >= args.version then return cmsgpack.pack(false) end
call('HSET', KEYS[1], 'version', args.version, 'body', args.body)
call('DEL', KEYS[2])
for first = 1, #args.weights, 1000 do
  call('HSET', KEYS[2], unpack(args.weights, first, math.min(first + 999, #args.weights)))
end
return cmsgpack.pack(true)
