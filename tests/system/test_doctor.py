"""`tradewind doctor` against a whole stack over a store that has been damaged."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.servers import RedisServer
from tests.system import flows
from tests.system.processes import NODES, Shell
from tests.waiting import until
from tradewind.access.stores.keys import Keys
from tradewind.client import Client
from tradewind.standalone import Standalone
from tradewind.worker import Worker, load_nodes


@pytest_asyncio.fixture
async def stack(embedded: RedisServer, tmp_path: Path) -> AsyncIterator[Standalone]:
    await embedded.flush()
    async with Standalone(data=tmp_path / "data", port=0, store_url=embedded.url()) as stack:
        yield stack
    await embedded.close_clients()


async def test_doctor_finds_busy_stack_healthy_and_mends_damage(stack: Standalone, embedded: RedisServer) -> None:
    shell = Shell(stack.address)
    async with Client(stack.address) as client, Worker(load_nodes(NODES), address=stack.address):
        await client.register_flow("sums", flows.sums("200ms"))
        await client.start_flow("sums")

        async def busy() -> bool:
            return [cycle async for cycle in client.list_cycles("sums")] != []

        await until(busy, "cycles run")
        diagnosis = await client.run_doctor()
        assert (diagnosis.findings, diagnosis.healthy) == ((), True)
        assert diagnosis.examined > 0
        assert "0 broken invariants" in await shell("doctor")

        admin = embedded.connect()
        await admin.execute_command("ZADD", "trading_flow:{s0}:inflight", 1e15, "gone:0:0:a")
        await admin.execute_command("ZADD", "trading_flow:{registry}:alive", 1e15, "gone")
        found = await shell("doctor", exit_code=1)
        assert "lease-without-task" in found
        assert "tradewind doctor --mend" in found
        mended: list[tuple[str, bool]] = []

        async def healthy() -> bool:
            # What moved between the doctor's two looks, such as leases of a busy stack, is found by the next run.
            run = await shell.json("doctor", "--mend")
            mended.extend((each["service"], each["mended"]) for each in run["findings"])
            return (await client.run_doctor()).findings == ()

        await until(healthy, "doctor finds nothing any more")
        assert sorted(mended) == [("node_task_manager", True), ("registry", True)]


async def test_doctor_examines_access_when_auth_is_on(
    embedded: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await embedded.flush()
    async with Standalone(data=tmp_path / "data", port=0, store_url=embedded.url(), auth=True) as stack:
        assert stack.new_admin_token is not None
        monkeypatch.setenv("TRADEWIND_TOKEN", stack.new_admin_token)
        shell = Shell(stack.address)
        assert "ann is user" in await shell("user", "set", "ann", "--role", "user")
        keys = Keys()
        await embedded.connect().hset(keys.user("ann"), mapping={"role": "king"})
        await embedded.connect().execute_command("ZADD", keys.users(0), 0, "gone")
        found = await shell.json("doctor", exit_code=1)
        assert sorted((each["service"], each["check"], each["subject"]) for each in found["findings"]) == [
            ("access", "index-without-record", "users gone"),
            ("access", "role-unknown", "ann"),
        ]
        output = await shell("doctor", "--mend", exit_code=1)
        assert "what was not mended needs manual repair" in output
        assert "set the role again" in output
        await shell("user", "set", "ann", "--role", "user")
        assert "0 broken invariants" in await shell("doctor")
    await embedded.close_clients()


async def test_access_commands_fail_with_reason_when_auth_is_off(stack: Standalone) -> None:
    shell = Shell(stack.address)
    for command in (("whoami",), ("token", "list"), ("user", "list")):
        assert "this stack has no access service, so calls need no token" in await shell(*command, exit_code=1)
