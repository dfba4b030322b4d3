"""Submissions of large flows have a stream of their own, and their plans are written in a thread."""

import threading
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.scheduler.memory_scheduler import MemoryScheduler
from tradewind.api.node_task_manager.v1 import component_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.scheduler.domain.component_plan import ComponentPlan
from tradewind.scheduler.domain.submission import Submission
from tradewind.scheduler.peers import node_task_manager
from tradewind.scheduler.peers.node_task_manager import NodeTaskManagerPeer
from tradewind.scheduler.peers.submission_mapping import add_plans


class Stream:
    """Takes requests."""

    def __init__(self) -> None:
        self.plans: list[int] = []
        self.closed = False

    async def submit(self, request: pb2.StreamSubmissionsRequest) -> Sequence[component_pb2.SubmitResult]:
        self.plans.append(len(request.request.plans))
        return [component_pb2.SubmitResult(outcome=component_pb2.SUBMIT_OUTCOME_ACCEPTED)] * len(request.request.runs)

    async def close(self) -> None:
        self.closed = True


def peer_over(small: Stream, large: Stream) -> NodeTaskManagerPeer:
    anything: Any = SimpleNamespace()
    for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
        setattr(anything, kind, lambda *_, **__: None)
    peer = NodeTaskManagerPeer(anything)
    peer._submissions, peer._large_submissions = small, large  # type: ignore[assignment]
    return peer


async def test_only_large_submissions_go_over_their_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = MemoryScheduler()
    await scheduler.register()
    run = await scheduler.run()
    threads: list[bool] = []

    def noted(request: pb2.SubmitComponentsRequest, plans: Iterable[ComponentPlan]) -> None:
        threads.append(threading.get_ident() != loop_thread)
        add_plans(request, plans)

    loop_thread = threading.get_ident()
    monkeypatch.setattr(node_task_manager, "add_plans", noted)
    small, large = Stream(), Stream()
    peer, plans = peer_over(small, large), list(run.planned.plans.values())
    for is_large in (False, True):
        submission = Submission(run.state, run.planned.components, is_large)
        await peer.submit([submission], ())
        await peer.submit([submission], plans)
    assert (small.plans, large.plans) == ([0, 1], [0, 1])
    assert threads == [False, False, False, True], "plans of large flows are written in a thread"
    await peer.close()
    assert small.closed
    assert large.closed
