"""Running an eager node as soon as its worker has its input, before that input is stored."""

import os
from collections.abc import Callable, Sequence

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker.outputs import Ending
from tradewind.worker.times import seconds_of

_MAX_TIMEOUT_S = 100 * 366 * 86_400.0
"""The longest timeout of a node, which keeps its deadline within what a message can hold."""


def next_assignment(
    assignment: work_pb2.NodeTaskAssignment,
    steps: Sequence[work_pb2.EagerStep],
    ending: Ending,
    now: Callable[[], float],
) -> work_pb2.NodeTaskAssignment | None:
    """Return the step that a node's outputs allow to begin, as an assignment under a new token; None if there is none.

    `now` returns the time by the servers' clock, in seconds since the epoch.
    """
    if isinstance(ending, list):
        outputs = dict(ending)
        for step in steps:
            if step.after_node_id == assignment.node_id and step.handle in outputs:
                return _assignment(assignment, step, outputs[step.handle], now)
    return None


def _assignment(
    predecessor: work_pb2.NodeTaskAssignment, step: work_pb2.EagerStep, value_json: str, now: Callable[[], float]
) -> work_pb2.NodeTaskAssignment:
    node_task_id = f"{predecessor.node_task_id.rpartition(':')[0]}:{step.node_id}"
    following = work_pb2.NodeTaskAssignment(
        token=f"{predecessor.token.partition('~')[0]}~{node_task_id}~1~{predecessor.run_id[:4]}{os.urandom(8).hex()}",
        node_task_id=node_task_id,
        flow_id=predecessor.flow_id,
        cycle=predecessor.cycle,
        run=predecessor.run,
        run_id=predecessor.run_id,
        component_id=predecessor.component_id,
        node_id=step.node_id,
        node_type=step.node_type,
        attempt=1,
        config_json=step.config_json,
        traceparent=predecessor.traceparent,
        user_id=predecessor.user_id,
    )
    following.inputs.add(handle=step.input_handle, values_json=[value_json])
    if predecessor.HasField("planned_time"):
        following.planned_time.CopyFrom(predecessor.planned_time)
    if step.HasField("timeout"):
        following.deadline.FromNanoseconds(round((now() + seconds_of(step.timeout, _MAX_TIMEOUT_S)) * 1e9))
    return following


class UnconfirmedTokens(dict[str, int]):
    """Tokens that this worker made and the node task manager has not acknowledged, each with the sequence number of the
    message that makes it known, 0 before that is sent."""

    def withholds(self, token: str, sequence: int) -> bool:
        """Return whether reports on `token` must not go into message `sequence`: another message makes it known."""
        return self.get(token, sequence) != sequence

    def acknowledge(self, sequence: int) -> None:
        """Note that messages up to `sequence` have taken effect."""
        for token in [token for token, at in self.items() if 0 < at <= sequence]:
            del self[token]

    def mark_unsent(self) -> None:
        """Note that unacknowledged messages will be sent again."""
        self.update(dict.fromkeys(self, 0))
