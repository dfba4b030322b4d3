-- Fails in the line below. KEYS: none. args: nothing.
return redis.error_reply('WRONG on purpose')
