"""The registry: who can do it. Workers, their heartbeats and the node types they offer."""
