"""Where node tasks are kept: Redis, and memory as its executable specification."""
