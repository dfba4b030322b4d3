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
        assert {wanted.value for wanted in module.MOVES[current]} == set(moves[current].split()), current


@pytest.mark.parametrize("status", FlowStatus)
def test_a_flow_can_move_as_its_table_says(status: FlowStatus) -> None:
    assert {wanted for wanted in FlowStatus if flow_status.can_move(status, wanted)} == flow_status.MOVES[status]


@pytest.mark.parametrize(
    ("module", "enum", "open_statuses"),
    [(cycle_status, CycleStatus, "running"), (node_status, NodeStatus, "registered pending running suspended")],
    ids=["cycle", "node"],
)
def test_all_statuses_but_these_are_terminal(module: ModuleType, enum: Any, open_statuses: str) -> None:
    assert [status.value for status in enum if not module.is_terminal(status)] == open_statuses.split()


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
