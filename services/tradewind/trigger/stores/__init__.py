"""The stores of triggers: in memory (the executable specification) and in Redis."""
