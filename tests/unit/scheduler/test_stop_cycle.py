"""Stopping a cycle once, twice, and by a call that is repeated."""

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.unit.scheduler.memory_scheduler import DirectNodeTasks, MemoryScheduler, wakes_nobody
from tests.waiting import until
from tradewind.scheduler.domain.submission import StopOrder
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.use_cases.background import Background
from tradewind.scheduler.use_cases.stop_cycle import StopCycle

AFTERWARDS: dict[str, Any] = {"finally": ["n1"]}
"""Has the second node handle the outcome of the first."""


class Stage:
    """A running cycle with a node that handles its outcome."""

    def __init__(self, node_tasks: DirectNodeTasks | None = None) -> None:
        self.scheduler = MemoryScheduler(node_tasks)

    async def begin(self) -> None:
        scheduler = self.scheduler
        await scheduler.register(nodes=2, **AFTERWARDS)
        run = (await scheduler.run()).state.name
        read: Any = SimpleNamespace(cycle=lambda *_: scheduler.state(run))
        states, clock = scheduler.stores.states, scheduler.clock
        self._stop = StopCycle(
            read, scheduler.definitions, states, scheduler.node_tasks, Background(), wakes_nobody, clock
        )

    async def stop(self, request_id: str = "", *, once: bool = False, wait: bool = True) -> bool:
        """Stop the cycle; return whether the nodes that handle the outcome are to stop too."""
        state = await self._stop("f", 0, 0, "ann", "enough", request_id=request_id, once=once, wait=wait)
        assert state.stop is not None
        return state.stop.forced


async def test_only_a_second_stop_ends_the_nodes_that_handle_the_outcome() -> None:
    """A call that is repeated, since its answer was lost, is none."""
    stage = Stage()
    await stage.begin()
    assert [await stage.stop("r1"), await stage.stop("r1"), await stage.stop("r2", once=True)] == [False] * 3
    assert await stage.stop("r2")


async def test_stops_without_a_request_id_are_two_stops() -> None:
    stage = Stage()
    await stage.begin()
    assert [await stage.stop(), await stage.stop()] == [False, True]


class Away(DirectNodeTasks):
    """Cannot be reached."""

    async def stop(self, order: StopOrder) -> None:
        raise PeerUnavailable("node task manager", "away")


async def test_stop_is_on_record_while_the_node_task_manager_is_away() -> None:
    """Only a caller that waits for the node task manager learns that it is away."""
    stage = Stage(Away())
    await stage.begin()
    with capture_logs() as logged:
        assert not await stage.stop("r1", wait=False)
        await until(lambda: logged, "the node task manager has been tried")
    with pytest.raises(PeerUnavailable):
        await stage.stop("r2")
