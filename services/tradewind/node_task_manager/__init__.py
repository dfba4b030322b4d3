"""The node task manager: getting node tasks done, exactly once to effect."""
