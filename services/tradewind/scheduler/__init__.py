"""The scheduler: flows and cycles, what runs and how it ends."""
