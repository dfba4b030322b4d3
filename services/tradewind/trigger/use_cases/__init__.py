"""What callers can do with triggers: save, remove, find, and receive what is due."""
