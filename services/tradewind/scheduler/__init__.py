"""The scheduler: flows and cycles, what runs and what became of it."""
