"""Test nodes with `run_node(moving_average, prices=[1.0])`, and flows with `running_stack([moving_average])`."""

from tradewind.testing.nodes import LogLine, NodeFailure, NodeRun, NodeWait, run_node
from tradewind.testing.stack import running_stack

__all__ = ["LogLine", "NodeFailure", "NodeRun", "NodeWait", "run_node", "running_stack"]
