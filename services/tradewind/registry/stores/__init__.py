"""The stores of the registry: Redis, and memory as its executable specification."""
