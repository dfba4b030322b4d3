"""Processes for nodes with `process=True`: started as needed, used again, killed when nothing else stops them.

`pool` and `node_process` are the worker's side, `start` and `serving` run in a child, `frames` is what they say to each
other, `targets` how a child finds a node.
"""

in_child = False
"""Whether this process is such a child."""
