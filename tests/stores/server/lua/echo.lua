-- Returns what it was given, the time it was told and the first key. KEYS[1]: any. args: (now_ms, value).
return cmsgpack.pack({ args[2], now(args[1]), KEYS[1] })
