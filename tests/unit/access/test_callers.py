"""What is remembered of tokens and what is asked again: after changes, within a call, and during an outage."""

import asyncio
from typing import Any

import pytest

from tests.gate_calls import Authority, Context
from tradewind.server.access import callers as module
from tradewind.server.access.callers import Callers
from tradewind.server.access.identity import Identity
from tradewind.server.access.roles import Role
from tradewind.server.faults import Unauthenticated, Unavailable


class SlowAuthority(Authority):
    """Answers each question, by what was known when it came, once the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.let: list[asyncio.Event] = []

    async def authorize(self, digest: str) -> Identity:
        found = await super().authorize(digest)
        self.let.append(asyncio.Event())
        await self.let[-1].wait()
        return found


def callers_of(authority: Authority, cache_s: float = 60) -> Callers:
    return Callers(authority, [], None, cache_s, "all")


async def identified(callers: Callers, context: Any) -> Identity:
    return await callers.identify(context, "GetFlow")


@pytest.mark.parametrize("first", [0, 1])
async def test_answer_to_a_question_before_a_change_is_not_kept(first: int) -> None:
    authority = SlowAuthority()
    callers, token = callers_of(authority), authority.token("ann")

    async def identify() -> Role:
        return (await identified(callers, Context(token))).role

    asking = [asyncio.ensure_future(identify())]
    await asyncio.sleep(0.01)
    authority.set(token, Role.ADMIN)
    callers.forget("ann")
    asking.append(asyncio.ensure_future(identify()))
    await asyncio.sleep(0.01)
    authority.let[first].set()
    await asking[first]
    asking.append(asyncio.ensure_future(identify()))
    await asyncio.sleep(0.01)
    assert authority.asked == 2
    authority.let[1 - first].set()
    assert await asyncio.gather(*asking) == [Role.USER, Role.ADMIN, Role.ADMIN]
    assert (await identify(), authority.asked) == (Role.ADMIN, 2), "it is asked no third time"


async def test_owner_found_for_a_call_counts_for_that_token_until_it_is_forgotten() -> None:
    authority = Authority()
    callers, ann, bea = callers_of(authority), Context(authority.token("ann")), Context(authority.token("bea"))
    assert await callers.refusal(ann.invocation_metadata(), "GetFlow") is None
    assert (await identified(callers, ann)).user_id == "ann"
    assert (await identified(callers, bea)).user_id == "bea"
    authority.roles.clear()
    assert (await identified(callers, ann)).user_id == "ann"
    callers.forget("ann")
    with pytest.raises(Unauthenticated):
        await identified(callers, ann)


async def test_refused_token_is_asked_about_again_after_all_is_forgotten() -> None:
    authority = Authority()
    callers, token = callers_of(authority), authority.token("ann")
    known = dict(authority.roles)
    authority.roles.clear()
    with pytest.raises(Unauthenticated):
        await identified(callers, Context(token))
    authority.roles |= known
    callers.forget(None)
    assert (await identified(callers, Context(token))).user_id == "ann"


async def test_token_revoked_before_an_outage_does_not_pass_during_it() -> None:
    authority = Authority()
    callers, token = callers_of(authority, 0), authority.token("ann", Role.WORKER)
    await identified(callers, Context(token))
    authority.set(token, None)
    with pytest.raises(Unauthenticated):
        await identified(callers, Context(token))
    authority.away = True
    with pytest.raises(Unavailable):
        await identified(callers, Context(token))


async def test_known_tokens_pass_only_for_a_while_during_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """However often the connection to the authority is lost meanwhile."""
    authority = Authority()
    callers, context = callers_of(authority, 0), Context(authority.token("ann"))
    await identified(callers, context)
    authority.away = True
    callers.forget(None)
    assert (await identified(callers, context)).user_id == "ann"
    monkeypatch.setattr(module, "STALE_S", 0.02)
    await asyncio.sleep(0.03)
    callers.forget(None)
    with pytest.raises(Unavailable):
        await identified(callers, context)
