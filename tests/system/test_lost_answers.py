"""Calls whose first answer is lost, against the whole stack: repeating them does no harm, and reports what they did."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest_asyncio

from tests.system.losing_client import LosingClient
from tradewind.client import Role
from tradewind.standalone import Standalone


@pytest_asyncio.fixture
async def client(stack: Standalone) -> AsyncIterator[LosingClient]:
    """A client of the stack, which has no worker."""
    async with LosingClient(stack.address) as client:
        yield client


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
