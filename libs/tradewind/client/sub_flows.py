"""Cycles that run for nodes of type `flow` of other flows."""

from dataclasses import dataclass

from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.scheduler.v1 import cycle_pb2


@dataclass(frozen=True, slots=True)
class ParentNode:
    """The node, and its `attempt`, that a cycle runs for; `depth` is how many flows are above the cycle, from 1."""

    flow_id: str
    cycle: int
    run: int
    node_id: str
    attempt: int
    depth: int

    def __str__(self) -> str:
        return f"{self.flow_id}:{self.cycle}:{self.run}:{self.node_id}"


@dataclass(frozen=True, slots=True)
class SubFlowCycle:
    """The cycle of a flow that a node runs or ran."""

    flow_id: str
    cycle: int
    run: int = 0


def parent_from(message: cycle_pb2.Cycle) -> ParentNode | None:
    """Read the node that a cycle runs for; None for none."""
    if not message.HasField("parent"):
        return None
    parent = message.parent
    return ParentNode(parent.flow_id, parent.cycle, parent.run, parent.node_id, parent.attempt, parent.depth)


def sub_flow_from(message: node_task_pb2.NodeTask) -> SubFlowCycle | None:
    """Read the cycle that a node task runs; None for none."""
    if not message.HasField("sub_flow"):
        return None
    return SubFlowCycle(message.sub_flow.flow_id, message.sub_flow.cycle, message.sub_flow.run)
