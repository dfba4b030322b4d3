"""Calls whose first answer is lost, against the whole stack: repeating them does no harm, and reports what they did."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio

from tests.system.losing_client import LosingClient
from tradewind.client import Aborted, CycleRecord, NodeTaskRecord, Role
from tradewind.flow import Flow
from tradewind.standalone import Standalone

Stop = Callable[[LosingClient], Awaitable[CycleRecord | NodeTaskRecord]]

STOPS: dict[str, Stop] = {
    "StopCycle": lambda client: client.stop_cycle("idle"),
    "StopComponent": lambda client: client.stop_component("idle", "0"),
    "StopNode": lambda client: client.stop_node("idle", "a"),
}


@pytest_asyncio.fixture
async def client(stack: Standalone) -> AsyncIterator[LosingClient]:
    """A client of the stack, which has no worker."""
    async with LosingClient(stack.address) as client:
        yield client


@pytest.mark.parametrize("rpc", STOPS)
async def test_repeated_stop_is_of_the_same_cycle_although_another_has_begun(client: LosingClient, rpc: str) -> None:
    """The cycle that is meant may have ended, too, before the repetition arrives."""
    flow = Flow("idle", "1h", overlap="allow")
    flow.node("a", "nobody")
    await client.register_flow(flow)
    meant = await client.run_flow("idle")

    async def end_and_run_again() -> None:
        await meant.wait(30)
        await client.run_flow("idle")

    client.losses[rpc] = end_and_run_again

    stopped = await STOPS[rpc](client)

    assert (stopped.cycle, stopped.ended) == (0, True)
    assert [cycle.ended async for cycle in client.list_cycles("idle")] == [False, True]


async def test_repeated_save_of_new_trigger_makes_one(client: LosingClient) -> None:
    client.losses["SaveTrigger"] = None

    saved = await client.save_trigger("", queue="q", every="1h")

    assert [trigger.trigger_id async for trigger in client.list_triggers("q")] == [saved.trigger_id]
    assert len(bytes.fromhex(saved.trigger_id)) == 16


async def test_repeated_redrive_of_trigger_succeeds(client: LosingClient) -> None:
    await client.save_trigger("doomed", queue="q", at=datetime.now(UTC))
    async with client.receive_due("q", credits=1) as due_triggers:
        for _ in range(10):
            await (await anext(due_triggers)).nack("no", retry_after=0)
    client.losses["RedriveTrigger"] = None

    await client.redrive_trigger("q", "doomed")

    assert not client.losses
    assert (await client.get_trigger("q", "doomed")).status == "scheduled"


async def test_repeated_removal_of_trigger_has_removed_it(client: LosingClient) -> None:
    await client.save_trigger("daily", queue="q", every="24h")
    client.losses["RemoveTrigger"] = None

    assert await client.remove_trigger("q", "daily")
    assert not await client.remove_trigger("q", "daily")


async def test_repeated_revocation_of_sessions_succeeds(tmp_path: Path) -> None:
    async with (
        Standalone(data=tmp_path / "data", port=0, auth=True) as stack,
        LosingClient(stack.address, token=stack.new_admin_token) as admin,
    ):
        bob = await admin.create_token("bob", role=Role.USER)
        admin.losses["RevokeSession"] = None
        await admin.revoke_session(bob.session.session_id, user_id="bob")
        assert [session async for session in admin.list_sessions("bob")] == []

        for revoke, lost in (("log_out", "RevokeSession"), ("revoke_sessions", "RevokeSessions")):
            own = await admin.create_token("bob")
            async with LosingClient(stack.address, token=own.token) as client:
                client.losses[lost] = None
                await getattr(client, revoke)()
                assert not client.losses
            assert [session async for session in admin.list_sessions("bob")] == []


async def test_repeated_update_of_configuration_is_no_conflict_with_itself(client: LosingClient) -> None:
    read = await client.get_config()
    client.losses["UpdateConfig"] = None

    changed = await client.update_config(max_running=7, etag=read.etag)

    assert (changed.max_running, changed) == (7, await client.get_config())
    with pytest.raises(Aborted):
        await client.update_config(max_running=8, etag=read.etag)
