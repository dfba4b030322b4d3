"""The first admin of a stack: the token that is made for it, and what becomes of it at restarts."""

from pathlib import Path

import pytest

from tests.system.processes import Shell
from tradewind.access.domain.session import MAX_SESSIONS
from tradewind.client import Client, Role
from tradewind.standalone import Standalone, StandaloneError
from tradewind.standalone.process import welcome


async def test_admin_token_survives_restart(tmp_path: Path) -> None:
    async with Standalone(data=tmp_path / "data", port=0, auth=True) as stack:
        token = stack.new_admin_token
    async with (
        Standalone(data=tmp_path / "data", port=0, auth=True) as stack,
        Client(stack.address, token=token) as client,
    ):
        assert stack.new_admin_token is None
        assert (await client.who_am_i()).role is Role.ADMIN


async def test_restart_replaces_lost_admin_token(tmp_path: Path) -> None:
    async with Standalone(data=tmp_path, port=0, auth=True) as stack:
        before = stack.new_admin_token
    stack.admin_token_file.unlink()

    async with (
        Standalone(data=tmp_path, port=0, auth=True) as stack,
        Client(stack.address, token=stack.new_admin_token) as client,
    ):
        assert stack.new_admin_token not in (None, before)
        assert (await client.who_am_i()).role is Role.ADMIN


async def test_start_fails_when_admin_has_too_many_tokens_for_a_new_one(tmp_path: Path) -> None:
    async with (
        Standalone(data=tmp_path, port=0, auth=True) as stack,
        Client(stack.address, token=stack.new_admin_token) as client,
    ):
        for _ in range(MAX_SESSIONS - 1):
            await client.create_token("admin")
    stack.admin_token_file.unlink()

    with pytest.raises(StandaloneError, match='user "admin" already has the maximum of 200 sessions'):
        await Standalone(data=tmp_path, port=0, auth=True).start()


async def test_start_makes_an_admin_only_when_there_is_none(tmp_path: Path) -> None:
    """An admin whom another admin has demoted stays so, even if the file with the token is gone."""
    async with (
        Standalone(data=tmp_path, port=0, auth=True) as stack,
        Client(stack.address, token=stack.new_admin_token) as admin,
    ):
        root = (await admin.create_token("root", role=Role.ADMIN)).token
        await admin.set_user("admin", Role.USER)
    stack.admin_token_file.unlink()

    async with Standalone(data=tmp_path, port=0, auth=True) as stack, Client(stack.address, token=root) as client:
        assert {user.user_id: user.role async for user in client.list_users()} == {
            "admin": Role.USER,
            "root": Role.ADMIN,
        }
        assert stack.new_admin_token is None
        assert not stack.admin_token_file.exists()
        assert 'No token was made for "admin"' in welcome(stack)
        assert "--token-file" not in welcome(stack)
        await client.set_user("root", Role.USER)

    async with (
        Standalone(data=tmp_path, port=0, auth=True) as stack,
        Client(stack.address, token=stack.new_admin_token) as client,
    ):
        assert (await client.who_am_i()).role is Role.ADMIN


async def test_accepted_service_token_can_create_an_admin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As docs/access.md says."""
    secret = "sixteen characters or more"
    monkeypatch.setenv("TRADEWIND_SERVICE_TOKENS_ACCEPTED", secret)
    async with Standalone(data=tmp_path, port=0, auth=True) as stack:
        monkeypatch.setenv("TRADEWIND_TOKEN", secret)
        token = await Shell(stack.address)("token", "create", "--user", "root", "--role", "admin")
        async with Client(stack.address, token=token.strip()) as client:
            assert (await client.who_am_i()).role is Role.ADMIN
