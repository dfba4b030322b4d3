"""Callers with no token, a foreign, expired or revoked token, or too small a role learn why, and nothing is done."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from tests.system import flows
from tests.waiting import until
from tradewind.client import Client, PermissionDenied, Role, TradewindError, Unauthenticated
from tradewind.flow import Flow
from tradewind.standalone import Standalone

Call = Callable[[Client], Awaitable[object]]

CALLS_ON_ANNS_FLOW: dict[str, Call] = {
    "register": lambda client: client.register_flow("sums", Flow("sums", "1m")),
    "update": lambda client: client.update_flow("sums", {"interval": "1s"}),
    "start": lambda client: client.start_flow("sums"),
    "run": lambda client: client.run_flow("sums"),
    "run many": lambda client: client.run_flows(["sums"]),
    "delete": lambda client: client.delete_flow("sums"),
}
"""Calls that would change something of ann's."""
OPERATOR_CALLS: dict[str, Call] = {
    "a limit": lambda client: client.update_config(max_running=1),
    "a job": lambda client: client.start_bulk_job("stop", ["*"]),
    "a worker": lambda client: client.drain_worker("worker-1"),
    "a role": lambda client: client.set_user("eve", Role.ADMIN),
    "mending": lambda client: client.run_doctor(mend=True),
}
"""Calls that users may not make at all."""


@pytest_asyncio.fixture
async def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Standalone]:
    """Every service behind a gate."""
    monkeypatch.delenv("TRADEWIND_TOKEN", raising=False)
    async with Standalone(data=tmp_path / "data", port=0, auth=True) as stack:
        yield stack


async def collect_refusals(client: Client, calls: dict[str, Call]) -> set[tuple[type[TradewindError], str]]:
    """Make every call; all of them must be refused. Return the refusals."""
    seen = set()
    for name, call in calls.items():
        with pytest.raises((Unauthenticated, PermissionDenied)) as refusal:
            await call(client)
        assert refusal.value.message, name
        seen.add((type(refusal.value), refusal.value.reason))
    return seen


async def test_unauthorized_calls_are_refused_with_reason_and_change_nothing(stack: Standalone) -> None:
    async with Client(stack.address, token=stack.new_admin_token) as admin:
        ann = (await admin.create_token("ann", role=Role.USER)).token
        bob = (await admin.create_token("bob", role=Role.USER)).token
        pool = (await admin.create_token("pool", role=Role.WORKER)).token
        expired_token = (await admin.create_token("eve", role=Role.USER, lifetime=0.05)).token
        revoked = await admin.create_token("eve")
        await admin.revoke_session(revoked.session.session_id, user_id="eve")

        async def has_expired() -> bool:
            return not [each async for each in admin.list_sessions("eve")]

        await until(has_expired, "the token has expired")
        async with Client(stack.address, token=ann) as client:
            await client.register_flow("sums", flows.sums())
            before = await client.get_flow("sums")
            config = await admin.get_config()

            everything = CALLS_ON_ANNS_FLOW | OPERATOR_CALLS
            expected = {
                None: (everything, {(Unauthenticated, "TOKEN_MISSING")}),
                "guessed": (everything, {(Unauthenticated, "TOKEN_INVALID")}),
                expired_token: (everything, {(Unauthenticated, "TOKEN_EXPIRED")}),
                revoked.token: (everything, {(Unauthenticated, "TOKEN_INVALID")}),
                bob: (CALLS_ON_ANNS_FLOW, {(PermissionDenied, "NOT_OWNER")}),
                ann: (OPERATOR_CALLS, {(PermissionDenied, "ROLE_TOO_SMALL")}),
                pool: (everything, {(PermissionDenied, "ROLE_TOO_SMALL")}),
            }
            for token, (calls, refusals) in expected.items():
                async with Client(stack.address, token=token) as caller:
                    assert await collect_refusals(caller, calls) == refusals

            assert await client.get_flow("sums") == before
            assert [each async for each in client.list_cycles("sums")] == []
            assert await admin.get_config() == config
            assert [each async for each in admin.list_bulk_jobs()] == []
            assert {each.user_id: each.role async for each in admin.list_users()}["eve"] is Role.USER
