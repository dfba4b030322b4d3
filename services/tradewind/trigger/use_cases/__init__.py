"""What callers can do with triggers: save, remove and find them, and receive those that are due."""
