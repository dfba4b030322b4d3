"""Stores of flows and cycles: in Redis, or in memory as the executable specification of the same."""
