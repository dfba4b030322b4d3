"""One class or function per verb of the node task manager."""
