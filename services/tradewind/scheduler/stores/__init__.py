"""Where flows and cycles stand: in Redis, or in memory as the executable specification of the same."""
