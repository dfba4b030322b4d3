-- Returns one value of each shape that a reply may have. KEYS: none. args: nothing.
return cmsgpack.pack({ name = 'flow', ratio = 2.0, empty = {}, nested = { { id = 'a', at = 1700000000000 } } })
