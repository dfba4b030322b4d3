"""What a change of one user costs a server that knows many."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.gate_calls import SCHEDULER, Authority, Context, call
from tests.waiting import until
from tradewind.api.scheduler.v1.scheduler_service_pb2 import ListFlowsRequest
from tradewind.server.access import callers
from tradewind.server.access.gate import Gate
from tradewind.server.faults import Unauthenticated

USERS = 300


class Name(str):
    """The id of a user, which counts how often any such id is compared with another."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        Name.compared += 1
        return super().__ne__(other)

    __hash__ = str.__hash__


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest_asyncio.fixture
async def gate(authority: Authority) -> AsyncIterator[Gate]:
    gate = Gate(authority, cache_s=60)
    gate.start()
    await until(lambda: authority.changed is not None, "the gate listens to changes")
    yield gate
    await gate.stop()


async def test_change_of_one_user_costs_no_look_at_all_others(gate: Gate, authority: Authority) -> None:
    """Thousands of users whose tokens are revoked one after the other must not keep every server busy."""
    tokens = [authority.token(Name(f"user{number}")) for number in range(USERS)]
    forever = asyncio.Event()

    async def watch(_request: Any, _context: Any) -> None:
        await forever.wait()

    watching = gate.around(f"{SCHEDULER}WatchFlow", watch)
    contexts: list[Any] = [Context(token) for token in tokens]
    streams = [asyncio.ensure_future(watching(None, context)) for context in contexts]
    await until(lambda: authority.asked == USERS, "all have been looked up")
    for token in tokens:
        await call(gate, "ListFlows", ListFlowsRequest(), token)
    assert authority.asked == USERS
    Name.compared = 0

    authority.set(tokens[7], None)

    with pytest.raises(Unauthenticated):
        await asyncio.wait_for(streams[7], 30)
    assert Name.compared < USERS
    for token in tokens[:7]:
        await call(gate, "ListFlows", ListFlowsRequest(), token)
    assert authority.asked == USERS + 1
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)


async def test_remembered_tokens_are_bounded_and_known_by_user(
    gate: Gate, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "_CACHE_SIZE", 3)
    tokens = [authority.token(f"user{number // 2}") for number in range(8)]
    for token in tokens:
        await call(gate, "ListFlows", ListFlowsRequest(), token)
    known = gate._callers
    assert (len(known._cache), {user: len(digests) for user, digests in known._digests.items()}) == (
        3,
        {"user2": 1, "user3": 2},
    )
    authority.set(tokens[7], None)
    assert (len(known._cache), list(known._digests)) == (1, ["user2"])


async def test_ended_stream_is_forgotten_and_what_its_task_goes_on_with_left_alone(
    gate: Gate, authority: Authority
) -> None:
    token = authority.token("ann")

    async def revoke(_request: Any, _context: Any) -> None:
        authority.set(token, None)

    context: Any = Context(token)
    await gate.around(f"{SCHEDULER}WatchFlow", revoke)(None, context)
    assert gate._streams == {}
    await until(lambda: authority.asked == 2, "the token is looked up again")
    for _ in range(20):
        await asyncio.sleep(0)
