"""The drill of docs/backup.md: load, back up under writes, lose everything, restore, doctor, flows go on."""

import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.system import flows
from tests.system.processes import NODES, Shell
from tests.waiting import until
from tools.store_secrets import BACKUP
from tradewind.cli.screen import iso
from tradewind.client import Client
from tradewind.server.redis.acl import ADMIN
from tradewind.server.redis.backup import find_backup
from tradewind.server.redis.client import connect
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.standalone import Standalone
from tradewind.standalone.services import ACL_USERS
from tradewind.worker import Worker, load_nodes


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the work of a lost worker run again after 2 s instead of half a minute."""
    monkeypatch.setenv("TRADEWIND_NODE_TASK_MANAGER_LEASE_SECONDS", "2")


async def completed(client: Client, flow_id: str) -> int:
    """Return the highest number of a completed cycle, -1 for none."""
    numbers = [each.cycle async for each in client.list_cycles(flow_id) if each.status == "completed"]
    return max(numbers, default=-1)


async def test_stack_is_restored_from_backup_of_data_directory(tmp_path: Path) -> None:
    """This uses `tradewind up` and its append-only files."""
    data, backup_dir = tmp_path / "data", tmp_path / "backups"
    async with (
        Standalone(data=data, port=0, node_task_manager_shards=2) as stack,
        Worker(load_nodes(NODES), address=stack.address),
        Client(stack.address) as client,
    ):
        await _load(client)
        before = await completed(client, "sums")
        shell = Shell(stack.address)

        async def backup_is_recent() -> bool:
            """With `everysec` the files may be two seconds behind."""
            await shell("backup", "create", str(backup_dir), "--data", str(data), "--keep", "1")
            return datetime.now(UTC).timestamp() - started > 3

        started = datetime.now(UTC).timestamp()
        await until(backup_is_recent, "the files hold what was answered")
        assert "is intact" in await shell("backup", "verify", str(backup_dir))
        assert (await shell.json("backup", "verify", str(backup_dir)))["keys"] > 0
    shutil.rmtree(data)

    assert f" to {data}\n" in await shell("backup", "restore", str(backup_dir), str(data))
    async with Standalone(data=data, port=0) as stack:
        await _check_restored(stack, before)


async def test_stack_is_restored_from_snapshot_of_separate_store(tmp_path: Path) -> None:
    """This uses a separate store, as on Kubernetes."""
    backup_dir = tmp_path / "backups"
    store = EmbeddedStore(tmp_path / "store", acl_users=ACL_USERS)
    await store.start()
    try:
        admin = connect(store.url_for(ADMIN))
        await admin.execute_command("ACL", "SETUSER", "backup", "on", ">secret", *BACKUP.split())
        await admin.end()
        async with (
            Standalone(data=tmp_path / "unused", port=0, store_url=store.url_for(ADMIN)) as stack,
            Worker(load_nodes(NODES), address=stack.address),
            Client(stack.address) as client,
        ):
            await _load(client)
            before = await completed(client, "sums")
            shell = Shell(stack.address)
            login = ("--store", f"redis://127.0.0.1:{store.port}", "--user", "backup", "--password", "secret")
            created = await shell.json("backup", "create", str(backup_dir), *login)
            found = find_backup(backup_dir)
            assert created == {
                "path": str(found.path),
                "kind": "snapshot",
                "taken_at": iso(found.taken_at),
                "bytes": found.bytes,
                "removed": [],
            }
    finally:
        await store.stop()
    shutil.rmtree(store.directory)

    await shell("backup", "restore", str(backup_dir), str(store.directory))
    store = EmbeddedStore(store.directory, acl_users=ACL_USERS)
    await store.start()
    try:
        async with Standalone(data=tmp_path / "unused", port=0, store_url=store.url_for(ADMIN)) as stack:
            await _check_restored(stack, before)
    finally:
        await store.stop()


async def _load(client: Client) -> None:
    """Set up a flow that runs all the time, an idle flow and a batch, and wait for some cycles."""
    await client.register_flow("sums", flows.sums("200ms"))
    await client.register_flow("idle", flows.sums("1h"))
    await client.start_flow("sums")
    batch = await client.submit_batch("total", [{"numbers": [number]} for number in range(20)])
    await batch.result()

    async def busy() -> bool:
        return await completed(client, "sums") >= 2

    await until(busy, "cycles have completed")


async def _check_restored(stack: Standalone, before: int) -> None:
    """Check that what had completed is restored, nothing is broken, and more completes."""
    shell = Shell(stack.address)
    async with Client(stack.address) as client:
        # Check before a worker may hide faults by going on.
        diagnosis = await client.run_doctor()
        assert (diagnosis.findings, diagnosis.healthy) == ((), True)
        restored = await completed(client, "sums")
        assert restored >= before
        assert {flow.flow_id for flow in [each async for each in client.list_flows()]} == {"sums", "idle"}
        (batch,) = [each async for each in client.list_batches()]
        assert batch.progress.completed == 20
        async with Worker(load_nodes(NODES), address=stack.address):

            async def more_completed() -> bool:
                return await completed(client, "sums") >= restored + 2

            await until(more_completed, "further cycles complete", timeout=120)
            described = await client.cycle("sums", restored + 1).describe()
            assert {node.status for node in described.nodes} <= {"completed", "skipped"}
            assert "0 broken invariants" in await shell("doctor", "--mend")
