"""Test nodes with `run_node(moving_average, prices=[1.0])`, flows with `running_stack([moving_average])` against a real
store, and months of flows with `simulate(main, [moving_average])` under a virtual clock."""

from tradewind.testing.nodes import LogLine, NodeFailure, NodeRun, NodeWait, run_node
from tradewind.testing.stack import running_stack
from tradewind.testing.virtual.history import History
from tradewind.testing.virtual.stack import VirtualStack, simulate

__all__ = [
    "History",
    "LogLine",
    "NodeFailure",
    "NodeRun",
    "NodeWait",
    "VirtualStack",
    "run_node",
    "running_stack",
    "simulate",
]
