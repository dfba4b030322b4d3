"""The node of another flow that a cycle runs for."""

from dataclasses import dataclass

from tradewind.scheduler.domain.run_name import RunName
from tradewind.server.built_in import MAX_DEPTH


@dataclass(frozen=True, slots=True)
class Parent:
    """Attempt `attempt` of a node of type `flow` in a run; `node` is `<node_id>`, or `<node_id>:<item>`.

    `depth` is the number of flows above the cycle that runs for the node, from 1.
    """

    run: RunName
    run_id: str
    node: str
    attempt: int
    depth: int = 1

    @property
    def task_id(self) -> str:
        """The id of the node task."""
        return f"{self.run}:{self.node}"

    @property
    def too_deep(self) -> bool:
        """Whether too many flows are above the cycle for it to begin."""
        return self.depth > MAX_DEPTH

    @property
    def request_id(self) -> str:
        """The request id with which asking for the cycle twice begins only one."""
        return f"sub-flow:{self.run_id}:{self.node}:{self.attempt}"
