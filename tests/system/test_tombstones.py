"""What a deleted flow leaves in the store: the documented tombstones, and nothing that arrives late."""

from pathlib import Path

from tests.system import flows
from tests.waiting import until
from tradewind.client import Client, NodeTaskStatus
from tradewind.server.partitions import partition_of
from tradewind.server.redis.client import connect
from tradewind.standalone import Standalone
from tradewind.worker import Worker

HOUR = 3600 * 1000


async def keys_naming(flow_id: str, stack: Standalone) -> dict[str, int]:
    """Return the keys that name a flow, over all services, with their TTLs in ms."""
    assert stack._store is not None
    admin = connect(stack._store.url_for())
    try:
        keys = [key.decode() for key in await admin.execute_command("KEYS", f"*{flow_id}*")]
        return {key: await admin.pttl(key) for key in sorted(keys)}
    finally:
        await admin.end()


def tombstones(flow_id: str) -> list[str]:
    """Return one key for each service that had anything of the flow."""
    partition = partition_of(flow_id)
    return [
        f"trading_flow:{{f{partition}}}:tombstone:{flow_id}",
        f"trading_flow:{{s0}}:purged:{flow_id}",
        f"trading_flow:{{t{partition}}}:removed_triggers:{flow_id}",
    ]


async def test_a_deleted_flow_leaves_a_tombstone_in_each_service(client: Client, stack: Standalone) -> None:
    await client.register_flow("sums", flows.sums("200ms"), request_id="register-sums")
    await (await client.run_flow("sums")).result(30)
    await client.flow("sums").start()

    async def ran() -> bool:
        return ((await client.get_flow("sums")).flow.last_cycle or 0) >= 2

    await until(ran, "cycles have begun on time")
    assert await client.delete_flow("sums", wait=20)

    left = await keys_naming("sums", stack)
    assert list(left) == tombstones("sums")
    assert all(0 < ttl <= HOUR for ttl in left.values())


async def test_late_worker_report_restores_nothing_of_deleted_flow(
    client: Client, stack: Standalone, worker: Worker, tmp_path: Path
) -> None:
    gate = tmp_path / "open"
    await client.register_flow("gated", flows.gated(gate))
    await client.run_flow("gated")
    await until(lambda: Path(f"{gate}.begun").exists(), "the gate has begun")

    async def running() -> bool:
        return (await client.get_node_task("gated:0:0:gate")).status is NodeTaskStatus.RUNNING

    await until(running, "the stack knows that the gate runs")
    assert await client.delete_flow("gated", wait=20)
    gate.touch()
    await until(lambda: worker.running == 0, "the worker has ended the node")

    await client.register_flow("sums", flows.sums())
    await (await client.run_flow("sums")).result(30)
    assert [key for key in await keys_naming("gated", stack) if key not in tombstones("gated")] == []
