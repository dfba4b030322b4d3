"""Where the registry keeps its records: Redis, and memory as its executable specification."""
