"""Statuses of node tasks: their names are those of the contract, and terminal ones are final."""

from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.node_task_manager.domain.node_task import TRANSITIONS, NodeTaskStatus


def test_statuses_match_the_contract() -> None:
    names = {name.removeprefix("NODE_TASK_STATUS_").lower() for name in node_task_pb2.NodeTaskStatus.keys()}  # noqa: SIM118

    assert names - {"unspecified"} == set(NodeTaskStatus)


def test_terminal_statuses_have_no_transitions() -> None:
    ends = {status for status in NodeTaskStatus if status.terminal}

    assert ends == {"completed", "failed", "terminated", "skipped"}
    assert all(not TRANSITIONS[status] for status in ends)
