"""Access to Redis: clients, typed Lua scripts, ACL users, pub/sub and the embedded store."""
