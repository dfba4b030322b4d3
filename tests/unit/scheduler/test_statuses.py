"""Statuses and their tables of allowed moves."""

from types import ModuleType
from typing import Any

import pytest

from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2
from tradewind.scheduler.domain import cycle_status, flow_status, node_status
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.node_status import NodeStatus

MOVES = [
    (
        flow_status,
        FlowStatus,
        {
            "registered": "running stopped deleting",
            "running": "paused stopped completed failed deleting",
            "paused": "running stopped completed failed deleting",
            "stopped": "running deleting",
            "completed": "running stopped deleting",
            "failed": "running stopped deleting",
            "deleting": "",
        },
    ),
    (
        cycle_status,
        CycleStatus,
        {
            "running": "completed partial failed timeout cancelled",
            "completed": "",
            "partial": "",
            "failed": "",
            "timeout": "",
            "cancelled": "",
        },
    ),
    (
        node_status,
        NodeStatus,
        {
            "registered": "pending suspended completed failed skipped",
            "pending": "running completed failed skipped",
            "running": "pending suspended completed failed terminated",
            "completed": "",
            "failed": "",
            "terminated": "",
            "skipped": "",
            "suspended": "pending completed failed terminated",
        },
    ),
]
NAMES = ["flow", "cycle", "node"]


@pytest.mark.parametrize(("module", "enum", "moves"), MOVES, ids=NAMES)
def test_only_listed_status_transitions_are_allowed(module: ModuleType, enum: Any, moves: dict[str, str]) -> None:
    assert [status.value for status in enum] == list(moves)
    for current in enum:
        allowed = {wanted.value for wanted in enum if module.can_move(current, wanted)}
        assert allowed == set(moves[current].split()), current
        assert module.is_terminal(current) == (not allowed)
        assert not module.can_move(current, current)


@pytest.mark.parametrize(
    ("enum", "wire", "prefix"),
    [
        (FlowStatus, flow_pb2.FlowStatus, "FLOW_STATUS_"),
        (CycleStatus, cycle_pb2.CycleStatus, "CYCLE_STATUS_"),
        (NodeStatus, node_task_pb2.NodeTaskStatus, "NODE_TASK_STATUS_"),
    ],
    ids=NAMES,
)
def test_statuses_match_the_contract(enum: Any, wire: Any, prefix: str) -> None:
    assert [prefix + status.value.upper() for status in enum] == wire.keys()[1:]


def test_node_status_error_means_failed() -> None:
    assert NodeStatus("error") is NodeStatus.FAILED
    with pytest.raises(ValueError, match="errored"):
        NodeStatus("errored")
