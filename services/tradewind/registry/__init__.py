"""The registry: who can do what. Workers, their heartbeats and the node types they offer."""
