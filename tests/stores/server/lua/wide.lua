-- Counts its runs and answers with a text as long as asked for. KEYS[1]: the counter. args: (mark, length).
-- Returns (mark, text).
redis.call('INCR', KEYS[1])
return cmsgpack.pack({args[1], string.rep('x', args[2])})
