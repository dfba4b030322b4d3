"""Processes for nodes with `process=True`: started as needed, reused, killed when nothing else stops them.

`pool` and `node_process` are the worker's side, `start` and `serving` run in a child, `frames` are the messages between
them, `targets` is how a child finds a node.
"""

in_child = False
"""Whether this process is a child for nodes."""
