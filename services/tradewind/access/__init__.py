"""Access: who may do what. Users and their roles, sessions and tokens."""
