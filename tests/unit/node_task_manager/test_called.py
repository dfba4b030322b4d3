"""Which replica calls a worker, how long a refusing worker is left alone, and what ends with the server."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from tests.unit.node_task_manager.conftest import Bench
from tests.waiting import until
from tradewind.node_task_manager.domain.called import CalledWorker, Patience, caller_of
from tradewind.node_task_manager.domain.node_task import NodeTaskStatus
from tradewind.node_task_manager.ports.work import Held
from tradewind.node_task_manager.ports.workers import Answer, Ready
from tradewind.node_task_manager.rpc.called_worker import CONNECT_S, EXECUTE_S
from tradewind.node_task_manager.use_cases import called as called_workers
from tradewind.node_task_manager.use_cases.called import CalledWorkers
from tradewind.node_task_manager.use_cases.called_line import CalledConnection, CalledLine
from tradewind.node_task_manager.use_cases.workers import WorkerPool

WORKERS = [f"w{at}" for at in range(300)]


def test_replicas_share_workers_about_evenly() -> None:
    shares = Counter(caller_of(worker, ["a", "b", "c"]) for worker in WORKERS)
    assert sorted(shares) == ["a", "b", "c"]
    assert min(shares.values()) > 60


def test_only_the_share_of_a_replica_that_leaves_moves() -> None:
    for worker in WORKERS:
        before, after = caller_of(worker, ["a", "b", "c"]), caller_of(worker, ["c", "a"])
        assert after == before or before == "b"


def test_the_order_in_which_replicas_are_named_does_not_matter() -> None:
    assert [caller_of(w, ["a", "b"]) for w in WORKERS] == [caller_of(w, ["b", "a"]) for w in WORKERS]


def test_a_worker_that_refuses_again_and_again_is_left_alone_ever_longer_up_to_30_s() -> None:
    patience = Patience()
    pauses = [patience.refused(full=False) for _ in range(20)]
    assert pauses[:4] == [0.5, 1, 2, 4]
    assert pauses[-1] == 30
    patience.accepted()
    assert patience.refused(full=False) == 0.5


def test_one_that_is_full_is_left_alone_for_2_s_at_most() -> None:
    patience = Patience()
    assert [patience.refused(full=True) for _ in range(5)] == [0.5, 1, 2, 2, 2]


def test_what_it_asks_for_is_heeded_within_a_minute() -> None:
    patience = Patience()
    assert patience.refused(full=True, asked_s=7) == 7
    assert patience.refused(full=True, asked_s=3600) == 60


def called(capacity: int) -> CalledConnection:
    """Return a worker that this process calls and that holds nothing."""
    said = CalledWorker("w1", "i1", "127.0.0.1:1", ("noop",), capacity)
    line = CalledLine(Mock(), Mock(), Mock())
    return CalledConnection("w1", "i1", ("noop",), capacity, line, said=said, mine=True)


def test_what_another_refused_can_go_to_a_worker_whose_room_a_claim_under_way_was_offered() -> None:
    worker = called(capacity=2)
    worker.promised = worker.room
    assert (worker.room, worker.takes, worker.load) == (0, True, 0)


def test_a_worker_takes_no_more_than_its_capacity_of_what_others_refused() -> None:
    worker = called(capacity=2)
    worker.coming, worker.others = 1, {(0, "a")}
    assert (worker.room, worker.takes, worker.load) == (0, False, 1)


def test_one_that_refused_takes_one_at_a_time_until_it_takes_something() -> None:
    worker = called(capacity=10)
    worker.patience.refused(full=True)
    assert (worker.room, worker.takes) == (1, True)
    worker.coming = 1
    assert (worker.room, worker.takes) == (0, False)


def test_who_did_not_take_a_node_task_is_forgotten_with_its_lease() -> None:
    worker, leases = called(capacity=3), [Held(f"f:0:0:{nonce}", 1, nonce) for nonce in "abc"]
    worker.held = {lease.nonce: (0, lease) for lease in leases}
    worker.tried = dict.fromkeys(worker.held, frozenset({"w2"}))
    worker.let_go("a")
    worker.forget(0, [leases[1]])
    worker.recount(0, worker.known(0), frozenset())
    assert (worker.held, worker.tried) == ({}, {})


class Silent:
    """Stands in for the list of workers, for the replicas, and for the calls of a worker that cannot be reached."""

    def __init__(self) -> None:
        self.listed = [CalledWorker("w1", "i1", "127.0.0.1:1", ("noop",), 1)]
        self.closed = False

    async def called(self) -> list[CalledWorker]:
        return self.listed

    async def meet(self, name: str, _keep_ms: int) -> Sequence[str]:
        return [name]

    async def broken(self) -> None:
        await asyncio.Event().wait()

    async def connected(self, _within_s: float) -> bool:
        await asyncio.Event().wait()
        return False

    async def close(self) -> None:
        self.closed = True


async def test_the_connection_of_one_that_has_just_left_the_list_ends_with_the_server() -> None:
    silent: Any = Silent()
    workers = CalledWorkers({}, WorkerPool(), silent, silent, lambda _url: silent, Mock(), "replica", grace_s=600)
    before = asyncio.all_tasks()
    await workers.look()
    silent.listed = []
    await workers.look()
    await workers.stop()
    assert (silent.closed, asyncio.all_tasks()) == (True, before)


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


async def test_what_is_being_handed_over_when_the_server_ends_goes_back_to_its_queue(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(called_workers, "_END_S", 0.01)
    slow: Any = Slow()
    workers = CalledWorkers(
        bench.dispatchers, bench.pool, slow, slow, lambda _url: slow, Mock(), "replica", grace_s=600
    )
    await workers.look()
    await bench.accepted(await bench.save("a"))
    await until(lambda: slow.handed == ["a"], "the node is being handed over")
    await workers.stop()

    async def queued() -> bool:
        (a,) = await bench.store.tasks(["flow:0:0:a"])
        return a is not None and a.status is NodeTaskStatus.PENDING

    await until(queued, "the node is in its queue again")


def test_a_call_under_way_has_time_to_be_answered_when_the_server_ends() -> None:
    assert called_workers._END_S > CONNECT_S + EXECUTE_S + 0.2
