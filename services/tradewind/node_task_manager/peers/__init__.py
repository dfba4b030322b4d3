"""Other services, as the node task manager sees them."""
