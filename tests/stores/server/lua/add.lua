local function add(key, amount)
  return redis.call('INCRBY', key, amount)
end
