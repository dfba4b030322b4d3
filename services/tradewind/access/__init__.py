"""Access: who may. Users and their roles, sessions and tokens."""
