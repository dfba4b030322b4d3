"""The node task manager: gets node tasks done, with each result counting exactly once."""
