"""Metrics that a real cycle leaves behind, as Prometheus scrapes and parses them."""

import re
import urllib.error
from pathlib import Path

import pytest

from tests.house.project import ROOT
from tests.metrics import Scraped, scrape
from tests.ports import free_port
from tests.system import flows
from tests.system.processes import Processes
from tests.waiting import until
from tradewind.client import Client, CycleStatus
from tradewind.server.metrics import SWITCH
from tradewind.server.redis.acl import ADMIN
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.server.redis.watch import METRICS
from tradewind.standalone import Standalone, StandaloneError

LABELS = {"method", "code", "service", "script", "node", "origin", "status", "outcome", "node_type", "event", "le"}
"""All labels that exist. None of them holds an id."""
SERVICES = (
    "tradewind.api.node_task_manager.v1.NodeTaskManagerService",
    "tradewind.api.registry.v1.RegistryService",
    "tradewind.api.scheduler.v1.SchedulerService",
    "tradewind.api.trigger.v1.TriggerService",
)
ONCE = {
    "tradewind_cycles_begun_total": {"origin": "schedule"},
    "tradewind_cycles_ended_total": {"status": "completed"},
    "tradewind_schedule_lateness_seconds_count": {},
    "tradewind_cycle_seconds_count": {},
    "tradewind_triggers_delivered_total": {},
    "tradewind_trigger_lateness_seconds_count": {},
}


async def test_cycle_appears_in_metrics_of_services_store_and_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, processes: Processes
) -> None:
    port, workers_port = free_port(), free_port()
    monkeypatch.setenv("TRADEWIND_METRICS_SECONDS", "0.05")
    monkeypatch.setenv("TRADEWIND_METRICS_PORT", str(workers_port))
    gate = tmp_path / "gate"
    with monkeypatch.context() as services:
        services.setenv("TRADEWIND_METRICS_PORT", str(port))
        stack = Standalone(data=tmp_path / "data", port=0)
        await stack.start()
    try:
        before = await scrape(port)
        worker = await processes.start_worker(stack.address)
        async with Client(stack.address) as client:
            await client.register_flow("sums", flows.sums())
            await client.flow("sums").start()
            await client.submit_task("nobody.offers.this", {})

            async def ended() -> bool:
                return (await client.get_flow("sums")).flow.last_cycle == 0 and (
                    await client.get_cycle("sums", 0)
                ).status is CycleStatus.COMPLETED

            await until(ended, "the first cycle has ended")
            await client.register_flow("gated", flows.gated(gate))
            run = await client.run_flow("gated")
            await until(Path(f"{gate}.begun").exists, "the gate is reached")

            async def measured() -> bool:
                now, held = await scrape(port), (await scrape(workers_port)).sum("tradewind_worker_held")
                depth = now.sum("tradewind_queue_depth", node_type="nobody.offers.this")
                return (now.sum("tradewind_slots_held"), depth, held) == (1, 1, 1)

            await until(measured, "queues and leases were measured after the gate was reached")
            after, of_worker = await scrape(port), await scrape(workers_port)
            gate.touch()
            await run.wait(30)
        check_growth(before, after)
        check_store_metrics(after)
        assert after.labels("tradewind_") <= LABELS
        assert after.sum("tradewind_worker_node_seconds_count") == before.sum("tradewind_worker_node_seconds_count")
        assert of_worker.sum("tradewind_worker_node_seconds_count", node_type="total", outcome="completed") >= 2
        assert (of_worker.sum("tradewind_worker_held"), of_worker.sum("tradewind_worker_capacity")) == (1, 100)
        assert of_worker.labels("tradewind_") <= LABELS
        assert after.names() | of_worker.names() <= documented()
        assert await worker.interrupt() == 0
    finally:
        await stack.stop()
    assert not SWITCH.on
    with pytest.raises(urllib.error.URLError):
        await scrape(port)


def documented() -> set[str]:
    """Return the names of all metrics that the documentation has."""
    page = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
    return set(re.findall(r"^\| `(tradewind_\w+)` \|", page, re.MULTILINE))


def check_growth(before: Scraped, after: Scraped) -> None:
    """Assert how metrics have grown by one scheduled cycle of four nodes and one cycle that stops at its third."""

    def growth(name: str, **labels: str) -> float:
        return after.sum(name, **labels) - before.sum(name, **labels)

    # At least that much: on a busy machine something may be sent twice.
    for name, labels in ONCE.items():
        assert growth(name, **labels) >= 1, name
    assert growth("tradewind_node_attempts_ended_total", outcome="completed") >= 6
    assert growth("tradewind_node_seconds_count") >= 6
    assert growth("tradewind_ready_to_start_seconds_count") >= 7
    assert after.sum("tradewind_slots_held") == 1
    assert after.sum("tradewind_workers_connected") == 1
    assert after.sum("tradewind_queue_depth", node_type="nobody.offers.this") == 1
    assert after.sum("tradewind_queue_oldest_seconds", node_type="nobody.offers.this") >= 0
    assert after.sum("tradewind_partitions_owned") == 16
    for service in SERVICES:
        assert after.sum("tradewind_ready", service=service) == 1
    assert growth("tradewind_rpc_seconds_count", method="SchedulerService/RegisterFlow", code="OK") >= 2
    assert growth("tradewind_streams_open", method="NodeTaskManagerService/Work") == 1
    assert growth("tradewind_store_script_seconds_count", script="complete_tasks") > 0
    assert growth("tradewind_event_loop_lag_seconds_count") > 0


def check_store_metrics(after: Scraped) -> None:
    """Assert the metrics of the store."""
    assert after.sum("tradewind_store_up") == 1
    assert 0 < after.sum("tradewind_store_memory_used_bytes") < after.sum("tradewind_store_memory_max_bytes")
    assert 0 < after.sum("tradewind_store_connections") < after.sum("tradewind_store_connections_max")
    assert after.sum("tradewind_store_keyspace_hits") > 0


async def test_stack_over_a_given_store_measures_it_as_the_user_for_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    monkeypatch.setenv("TRADEWIND_METRICS_PORT", str(port))
    store = EmbeddedStore(tmp_path / "store", acl_users=[METRICS])
    await store.start()
    try:
        for name, user in (("STORE", ADMIN), ("METRICS_STORE", METRICS.name)):
            monkeypatch.setenv(f"TRADEWIND_{name}_USER", user)
            monkeypatch.setenv(f"TRADEWIND_{name}_PASSWORD", store.password_of(user))
        async with Standalone(port=0, store_url=f"redis://127.0.0.1:{store.port}"):

            async def measured() -> bool:
                return (await scrape(port)).sum("tradewind_store_memory_used_bytes") > 0

            await until(measured, "the store's memory is known")
    finally:
        await store.stop()


async def test_taken_metrics_port_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    monkeypatch.setenv("TRADEWIND_METRICS_PORT", str(port))
    async with Standalone(data=tmp_path / "one", port=0):
        with pytest.raises(StandaloneError, match=f"cannot serve metrics on 127.0.0.1:{port}: .*METRICS_PORT"):
            await Standalone(data=tmp_path / "two", port=0).start()
