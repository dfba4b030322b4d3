"""The registry's answers, and the faults it raises, over the store in memory."""

from collections.abc import Iterator, Sequence

import pytest

from tradewind.registry import use_cases
from tradewind.registry.domain.limits import Lifetimes, Limits
from tradewind.registry.domain.node_type import NodeType
from tradewind.registry.domain.worker import Worker, WorkerRecord
from tradewind.registry.stores.memory import MemoryRegistry
from tradewind.server.clock import ManualClock
from tradewind.server.faults import Exhausted, FailedPrecondition, InvalidInput, NotFound

LIMITS = Limits(workers=2, node_types=3, named_node_types=4, answer_bytes=2_000)
WORKER = Worker("w", "i1", 10, node_types=("ignored",))
AVERAGE = NodeType("average")


@pytest.fixture
def registry() -> MemoryRegistry:
    return MemoryRegistry(ManualClock(), Lifetimes(), LIMITS)


def paths(caught: pytest.ExceptionInfo[InvalidInput]) -> list[str]:
    return [violation.path for violation in caught.value.violations]


async def register(
    registry: MemoryRegistry, worker: Worker, node_types: Sequence[NodeType]
) -> tuple[WorkerRecord, list[str]]:
    return await use_cases.register_worker(registry.workers, registry.node_types, worker, node_types, registry.limits)


async def test_worker_offers_exactly_the_node_types_it_declares(registry: MemoryRegistry) -> None:
    record, _ = await register(registry, WORKER, [AVERAGE])
    assert record.worker.node_types == ("average",)


async def test_faults_of_worker_and_declarations_are_reported_together(registry: MemoryRegistry) -> None:
    with pytest.raises(InvalidInput) as caught:
        await register(registry, Worker("", "", 0), [NodeType("a b")])
    assert paths(caught) == ["worker.worker_id", "worker.incarnation", "worker.capacity", "node_types[0].type"]
    with pytest.raises(InvalidInput) as caught:
        await use_cases.heartbeat(registry.workers, Worker("w", "i", 0, node_types=("a b",)), LIMITS)
    assert paths(caught) == ["worker.capacity", "worker.node_types[0]"]


async def test_registration_of_a_replaced_incarnation_is_refused_with_a_reason(registry: MemoryRegistry) -> None:
    await register(registry, WORKER, [])
    await register(registry, Worker("w", "i2", 1), [])
    with pytest.raises(FailedPrecondition) as caught:
        await register(registry, WORKER, [])
    assert caught.value.reason == "SESSION_REPLACED"
    assert (caught.value.subject, caught.value.metadata) == ("workers/w", {"worker_id": "w"})


async def test_full_registry_refuses_with_a_retry_delay(registry: MemoryRegistry) -> None:
    for name in ("a", "b"):
        await register(registry, Worker(name, "i", 1), [])
    for call in (
        register(registry, Worker("c", "i", 1), []),
        use_cases.heartbeat(registry.workers, Worker("c", "i", 1), LIMITS),
        register(registry, Worker("a", "i", 1), [NodeType(n) for n in "wxyz"]),
    ):
        with pytest.raises(Exhausted) as caught:
            await call
        assert (caught.value.reason, caught.value.retry_after_s) == ("QUEUE_FULL", 60)


async def test_missing_workers_and_node_types_are_not_found(registry: MemoryRegistry) -> None:
    for call, reason in (
        (use_cases.get_worker(registry.workers, "w"), "WORKER_NOT_FOUND"),
        (use_cases.drain_worker(registry.workers, "w"), "WORKER_NOT_FOUND"),
        (use_cases.get_node_type(registry.node_types, "average"), "NODE_TYPE_NOT_FOUND"),
    ):
        with pytest.raises(NotFound) as caught:
            await call
        assert caught.value.reason == reason
    assert not await use_cases.deregister_worker(registry.workers, "w", "")


async def test_illegal_names_are_refused(registry: MemoryRegistry) -> None:
    def calls() -> Iterator[tuple[object, list[str]]]:
        yield use_cases.get_worker(registry.workers, ""), ["worker_id"]
        yield use_cases.drain_worker(registry.workers, "a:b"), ["worker_id"]
        yield use_cases.deregister_worker(registry.workers, "", ""), ["worker_id"]
        yield use_cases.get_node_type(registry.node_types, "a b"), ["type"]
        yield use_cases.available_workers(registry.workers, "", -1, LIMITS), ["node_type", "limit"]

    for call, expected in calls():
        with pytest.raises(InvalidInput) as caught:
            await call  # type: ignore[misc]
        assert paths(caught) == expected


async def test_available_workers_are_limited_by_request_and_maximum(registry: MemoryRegistry) -> None:
    limits = Limits(available=1, max_available=2)
    registry.limits = limits
    for name in ("a", "b", "c"):
        await register(registry, Worker(name, "i", 1), [AVERAGE])
    for limit, expected in ((0, 1), (1, 1), (2, 2), (3, 2)):
        assert len(await use_cases.available_workers(registry.workers, "average", limit, limits)) == expected


async def test_named_node_types_are_returned_once_each_within_limits(registry: MemoryRegistry) -> None:
    declared = [NodeType("a"), NodeType("b", "x" * 1_200), NodeType("c", "x" * 1_200)]
    await register(registry, WORKER, declared)
    found = await use_cases.find_node_types(registry.node_types, ["b", "a", "b"], LIMITS)
    assert [record.node_type.name for record in found] == ["b", "a"]
    for names, message in (
        (["b", "c"], "together their declarations have more than 2000 bytes"),
        (list("abcde"), "name at most 4 at once, not 5"),
    ):
        with pytest.raises(InvalidInput) as caught:
            await use_cases.find_node_types(registry.node_types, names, LIMITS)
        assert paths(caught) == ["types"]
        assert message in caught.value.violations[0].message


async def test_worker_is_warned_however_many_others_offer_its_node_types(registry: MemoryRegistry) -> None:
    registry.limits = Limits(answer_bytes=2_000)
    for number in range(60):
        await register(registry, Worker(f"worker-with-a-long-id-in-a-large-cluster-{number}", "i1", 1), [AVERAGE])
    _, warnings = await register(registry, WORKER, [NodeType("average", config_schema="{}")])
    assert len(warnings) == 1
