"""Who is offered a claim: workers of every kind in turn, and none that is full."""

from tests.unit.node_task_manager.conftest import Bench, Line
from tests.waiting import until
from tradewind.node_task_manager.use_cases.connected_worker import UNANSWERED_PINGS, ConnectedWorker
from tradewind.node_task_manager.use_cases.worker_pool import MAX_VACANCIES, WorkerPool


def connected(pool: WorkerPool, worker_id: str, *node_types: str, capacity: int = 1) -> ConnectedWorker:
    """Add a worker with a session in shard 0."""
    worker = ConnectedWorker(worker_id, "i1", node_types, capacity, Line(), {0: 1})
    pool.add(worker)
    return worker


def test_only_worker_of_a_kind_is_offered_beside_many_of_another() -> None:
    pool = WorkerPool()
    for at in range(100):
        connected(pool, f"w{at}", "common")
    connected(pool, "special", "rare")
    offers = pool.promise(0)
    assert len(offers) == MAX_VACANCIES
    assert "special" in [vacancy.worker_id for _, vacancy in offers]


def test_every_worker_kind_has_its_turn_when_one_claim_is_too_small() -> None:
    pool = WorkerPool()
    for at in range(3 * MAX_VACANCIES):
        connected(pool, f"a{at}", f"type{at}")
        connected(pool, f"b{at}", f"type{at}")
    offered: set[str] = set()
    assert pool.rounds == 3
    for _ in range(pool.rounds):
        offers = pool.promise(0)
        offered |= {vacancy.node_types[0] for _, vacancy in offers}
        pool.settle(offers)
    assert len(offered) == 3 * MAX_VACANCIES


def test_node_types_of_one_claim_are_bounded() -> None:
    pool = WorkerPool()
    for at in range(MAX_VACANCIES):
        connected(pool, f"w{at}", *(f"t{at}-{number}" for number in range(500)))
    assert sum(len(vacancy.node_types) for _, vacancy in pool.promise(0)) <= 4500


def test_as_many_workers_as_a_claim_takes_are_offered_however_many_types_they_have_in_common() -> None:
    pool = WorkerPool()
    for at in range(MAX_VACANCIES):
        connected(pool, f"w{at}", *(f"t{number}" for number in range(500)))
    assert len(pool.promise(0)) == MAX_VACANCIES


async def test_a_rare_node_type_is_claimed_at_once_beside_many_idle_workers(bench: Bench) -> None:
    for at in range(80):
        await bench.connect(f"w{at}")
    _, line = await bench.connect("special", node_types=("rare",))
    await bench.accepted(await bench.save("a", node_type="rare"))
    bench.dispatcher.request_claim()
    await until(lambda: line.nodes == ["a"], "the special worker has it")


def test_silent_or_stuck_worker_gets_no_offer() -> None:
    pool = WorkerPool()
    silent, stuck, fine = (connected(pool, name, "noop") for name in ("silent", "stuck", "fine"))
    silent.unanswered_pings = UNANSWERED_PINGS + 1
    stuck.line.full = True  # type: ignore[misc]
    for worker in (silent, stuck):
        pool.refresh(worker)
    assert [worker for worker, _ in pool.promise(0)] == [fine]
    silent.unanswered_pings = 0
    pool.refresh(silent)
    assert [worker for worker, _ in pool.promise(0)] == [silent]


def test_promised_room_is_not_promised_again_until_settled() -> None:
    pool = WorkerPool()
    worker = connected(pool, "w1", "noop", capacity=3)
    notified: list[bool] = []
    pool.on_room(lambda: notified.append(True))
    offers = pool.promise(0)
    assert ([vacancy.credits for _, vacancy in offers], pool.promise(0), pool.has_room) == ([3], [], False)
    pool.settle(offers)
    assert (worker.room, pool.has_room, notified) == (3, True, [True])


def test_part_of_the_room_is_reserved_for_concurrent_scripts() -> None:
    pool = WorkerPool()
    worker = connected(pool, "w1", "noop", capacity=100)
    notified: list[bool] = []
    pool.on_room(lambda: notified.append(True))
    first, second, third = (pool.promise(0, reserve=True) for _ in range(3))
    assert [[vacancy.credits for _, vacancy in offers] for offers in (first, second, third)] == [[75], [25], []]
    pool.settle(first)
    assert (worker.room, [vacancy.credits for _, vacancy in pool.promise(0)]) == (75, [75])
    pool.settle(second)
    assert (worker.room, notified) == (25, [True, True])


def test_newer_stream_replaces_the_older() -> None:
    pool = WorkerPool()
    older = connected(pool, "w1", "noop")
    offers = pool.promise(0)
    newer = connected(pool, "w1", "noop")
    pool.settle(offers)
    pool.remove(older)
    assert (older in pool, newer in pool, older.line.closed_for != "") == (False, True, True)  # type: ignore[attr-defined]
    assert [worker for worker, _ in pool.promise(0)] == [newer]


def test_pool_knows_which_types_are_offered_while_workers_come_and_go() -> None:
    pool = WorkerPool()
    first = connected(pool, "w1", "a", "b")
    connected(pool, "w2", "b", "c")
    assert [pool.offers(name) for name in "abcd"] == [True, True, True, False]
    pool.remove(first)
    pool.remove(first)
    assert [pool.offers(name) for name in "abcd"] == [False, True, True, False]
    newer = connected(pool, "w2", "d")
    assert [pool.offers(name) for name in "abcd"] == [False, False, False, True]
    pool.remove(newer)
    assert not any(pool.offers(name) for name in "abcd")
