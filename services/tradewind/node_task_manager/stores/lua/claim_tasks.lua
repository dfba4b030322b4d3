-- Gives ready node tasks to vacancies, and does work that earlier scripts left.
-- KEYS[1] any key of the shard. args: base, now, limits, nonce, vacancies. Returns Effects.
--!include claim
return cmsgpack.pack(conclude())
