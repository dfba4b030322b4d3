"""Which replica calls a worker, how long a refusing worker is left alone, and what ends with the server."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from tests.unit.node_task_manager.conftest import Bench, outcome
from tests.waiting import until
from tradewind.node_task_manager.domain.called import CalledWorker, RefusalBackoff, caller_of
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.node_task_manager.ports.work import Held
from tradewind.node_task_manager.ports.workers import Answer, Ready
from tradewind.node_task_manager.rpc.called_worker import CONNECT_S, EXECUTE_S
from tradewind.node_task_manager.use_cases import called as called_workers
from tradewind.node_task_manager.use_cases.called import CalledWorkers
from tradewind.node_task_manager.use_cases.called_connection import CalledConnection
from tradewind.node_task_manager.use_cases.called_line import CalledLine
from tradewind.node_task_manager.use_cases.worker_pool import WorkerPool

WORKERS = [f"w{at}" for at in range(300)]


def test_replicas_share_workers_about_evenly() -> None:
    shares = Counter(caller_of(worker, ["a", "b", "c"]) for worker in WORKERS)
    assert sorted(shares) == ["a", "b", "c"]
    assert min(shares.values()) > 60


def test_only_workers_of_leaving_replica_change_caller() -> None:
    for worker in WORKERS:
        before, after = caller_of(worker, ["a", "b", "c"]), caller_of(worker, ["c", "a"])
        assert after == before or before == "b"


def test_caller_does_not_depend_on_order_of_replicas() -> None:
    assert [caller_of(w, ["a", "b"]) for w in WORKERS] == [caller_of(w, ["b", "a"]) for w in WORKERS]


def test_pause_after_refusals_doubles_up_to_30_s() -> None:
    backoff = RefusalBackoff()
    pauses = [backoff.refused(full=False) for _ in range(20)]
    assert pauses[:4] == [0.5, 1, 2, 4]
    assert pauses[-1] == 30
    backoff.accepted()
    assert backoff.refused(full=False) == 0.5


def test_pause_of_full_worker_is_at_most_2_s() -> None:
    backoff = RefusalBackoff()
    assert [backoff.refused(full=True) for _ in range(5)] == [0.5, 1, 2, 2, 2]


def test_requested_pause_is_honored_up_to_a_minute() -> None:
    backoff = RefusalBackoff()
    assert backoff.refused(full=True, requested_s=7) == 7
    assert backoff.refused(full=True, requested_s=3600) == 60


def called(capacity: int) -> CalledConnection:
    """Return a worker that this process calls and that holds nothing."""
    listing = CalledWorker("w1", "i1", "127.0.0.1:1", ("noop",), capacity)
    line = CalledLine(Mock(), Mock(), Mock())
    return CalledConnection("w1", "i1", ("noop",), capacity, line, listing=listing, mine=True)


def test_refused_node_task_may_use_room_promised_to_a_claim() -> None:
    worker = called(capacity=2)
    worker.promised = worker.room
    assert (worker.room, worker.accepts, worker.load) == (0, True, 0)


def test_worker_accepts_refused_node_tasks_only_up_to_capacity() -> None:
    worker = called(capacity=2)
    worker.incoming, worker.others = 1, {(0, "a")}
    assert (worker.room, worker.accepts, worker.load) == (0, False, 1)


def test_refusing_worker_is_offered_one_node_task_at_a_time() -> None:
    worker = called(capacity=10)
    worker.backoff.refused(full=True)
    assert (worker.room, worker.accepts) == (1, True)
    worker.incoming = 1
    assert (worker.room, worker.accepts) == (0, False)


def test_refusals_are_forgotten_with_the_lease() -> None:
    worker, leases = called(capacity=3), [Held(f"f:0:0:{nonce}", 1, nonce) for nonce in "abc"]
    worker.held = {lease.nonce: (0, lease) for lease in leases}
    worker.tried = dict.fromkeys(worker.held, frozenset({"w2"}))
    worker.release("a")
    worker.forget(0, [leases[1]])
    worker.recount(0, worker.believed_held(0), frozenset())
    assert (worker.held, worker.tried) == ({}, {})


class Silent:
    """Stands in for the list of workers, for the replicas, and for the calls of a worker that cannot be reached."""

    def __init__(self) -> None:
        self.listed = [CalledWorker("w1", "i1", "127.0.0.1:1", ("noop",), 1)]
        self.closed = False

    async def called(self) -> list[CalledWorker]:
        return self.listed

    async def check_in(self, name: str, _keep_ms: int) -> Sequence[str]:
        return [name]

    async def broken(self) -> None:
        await asyncio.Event().wait()

    async def connected(self, _within_s: float) -> bool:
        await asyncio.Event().wait()
        return False

    async def close(self) -> None:
        self.closed = True


async def test_server_stop_closes_connection_of_unlisted_worker() -> None:
    silent: Any = Silent()
    workers = CalledWorkers({}, WorkerPool(), silent, silent, lambda _url: silent, Mock(), "replica", grace_s=600)
    before = asyncio.all_tasks()
    await workers.refresh()
    silent.listed = []
    await workers.refresh()
    await workers.stop()
    assert (silent.closed, asyncio.all_tasks()) == (True, before)


@pytest.mark.parametrize("returned_s", [0.0, 3600.0])
async def test_worker_has_time_to_report_to_a_registry_that_was_away(
    monkeypatch: pytest.MonkeyPatch, returned_s: float
) -> None:
    monkeypatch.setattr(called_workers, "RETURN_S", returned_s)
    silent: Any = Silent()
    pool = WorkerPool()
    workers = CalledWorkers({}, pool, silent, silent, lambda _url: silent, Mock(), "replica", grace_s=600)
    await workers.refresh()
    for silent.listed in (None, []):
        await workers.refresh()
    assert [each.worker_id for each in pool] == (["w1"] if returned_s else [])
    await workers.stop()


def calling(bench: Bench, peer: Any) -> CalledWorkers:
    """What calls workers; `peer` stands in for the registry, the other replicas and the workers."""
    return CalledWorkers(bench.dispatchers, bench.pool, peer, peer, lambda _url: peer, Mock(), "replica", grace_s=600)


class Slow(Silent):
    """One that is reached and does not answer; as with grpc.aio, closing the connection cancels the call under way."""

    def __init__(self) -> None:
        super().__init__()
        self.handed: list[str] = []
        self._answer = asyncio.get_running_loop().create_future()

    async def connected(self, _within_s: float) -> bool:
        return True

    async def execute(self, ready: Sequence[Ready]) -> Answer:
        self.handed += [each.node.node_id for each in ready]
        answer: Answer = await self._answer
        return answer

    async def close(self) -> None:
        self._answer.cancel()
        await super().close()


async def test_node_task_being_handed_over_is_requeued_when_server_stops(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(called_workers, "_END_S", 0.01)
    slow: Any = Slow()
    workers = calling(bench, slow)
    await workers.refresh()
    await bench.accepted(await bench.save("a"))
    await until(lambda: slow.handed == ["a"], "the node is being handed over")
    await workers.stop()

    async def queued() -> bool:
        (a,) = await bench.store.tasks(["flow:0:0:a"])
        return a is not None and a.status is NodeTaskStatus.PENDING

    await until(queued, "the node is in its queue again")


class Shared(Silent):
    """A worker that accepts everything, and replicas of which this one need not be the one that calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.ready: list[Ready] = []
        self.others: list[str] = []

    async def check_in(self, name: str, _keep_ms: int) -> Sequence[str]:
        return [name, *self.others]

    async def connected(self, _within_s: float) -> bool:
        return True

    async def execute(self, ready: Sequence[Ready]) -> Answer:
        self.ready += ready
        return Answer(accepted=frozenset(each.nonce for each in ready))


async def test_end_that_another_replica_heard_of_is_noticed_by_replica_that_gave_the_node_task(bench: Bench) -> None:
    """A reaper that believes its workers to hold something would look for lapsed leases more often for ever."""
    shared: Any = Shared()
    workers = calling(bench, shared)
    await workers.refresh()
    await bench.accepted(await bench.save("a"))
    await until(lambda: shared.ready, "the node is handed over")
    shared.others = [next(name for name in WORKERS if caller_of("w1", ["replica", name]) == name)]
    await workers.refresh()
    (worker,) = bench.pool
    assert (worker.reachable, list(worker.held)) == (False, [shared.ready[0].nonce])
    _, ended = outcome(shared.ready[0])
    await bench.store.complete([ended])
    await workers.refresh()
    assert worker.held == {}
    await workers.stop()


class Away(Shared):
    """One whose connection breaks, and cannot be restored, when `gone` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.gone = asyncio.Event()

    async def broken(self) -> None:
        await self.gone.wait()
        self.gone.clear()

    async def connected(self, _within_s: float) -> bool:
        return False


@pytest.mark.parametrize(("calls_it", "status"), [(True, NodeTaskStatus.PENDING), (False, NodeTaskStatus.RUNNING)])
async def test_only_replica_that_calls_a_worker_takes_back_what_it_holds(
    bench: Bench, calls_it: bool, status: NodeTaskStatus
) -> None:
    """Another replica may be cut off from a worker that goes on."""
    away: Any = Away()
    workers = calling(bench, away)
    await workers.refresh()
    await bench.accepted(await bench.save("a"))
    await until(lambda: away.ready, "the node is handed over")
    if not calls_it:
        away.others = [next(name for name in WORKERS if caller_of("w1", ["replica", name]) == name)]
        await workers.refresh()
    worker: Any = next(iter(bench.pool))
    away.gone.set()
    await until(lambda: worker.lost, "the connection could not be restored")
    (a,) = await bench.store.tasks(["flow:0:0:a"])
    assert a is not None
    assert a.status is status
    await workers.stop()


class Reluctant(Shared):
    """Two workers, of which the one that is called first refuses."""

    async def called(self) -> list[CalledWorker]:
        return [CalledWorker(name, "i1", "127.0.0.1:1", ("noop",), 1) for name in ("w1", "w2")]

    async def execute(self, ready: Sequence[Ready]) -> Answer:
        answer = await super().execute(ready)
        return answer if len(self.ready) > 1 else Answer(refused="no room")


async def test_refused_node_task_is_offered_as_one_that_is_passed_on(bench: Bench) -> None:
    reluctant: Any = Reluctant()
    workers = calling(bench, reluctant)
    await workers.refresh()
    await bench.accepted(await bench.save("a"))
    await until(lambda: len(reluctant.ready) == 2, "it is offered to the other one")
    offered = [each.assignment for each in reluctant.ready]
    assert [(each.attempt, each.sent_before) for each in offered] == [(1, False), (1, True)]
    await workers.stop()


def test_server_stop_allows_time_for_execute_calls_to_finish() -> None:
    assert called_workers._END_S > CONNECT_S + EXECUTE_S + 0.2
