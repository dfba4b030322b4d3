"""Daily quotas at the gate: refused calls are refunded, calls that may have had an effect are not."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.gate_calls import SCHEDULER, Authority, Context, Owners, call
from tests.waiting import until
from tradewind.api.scheduler.v1.scheduler_service_pb2 import GetFlowRequest, RunFlowRequest
from tradewind.server.access.gate import Gate
from tradewind.server.access.gate_settings import quotas_in, rates_in
from tradewind.server.access.limits import quotas_of
from tradewind.server.access.metering import counted_calls
from tradewind.server.access.roles import Role
from tradewind.server.faults import Exhausted, InvalidInput, NotFound, Unauthenticated, Unavailable
from tradewind.server.rates import Rate
from tradewind.server.settings import CommonSettings, load_settings

RUN = RunFlowRequest(flow_id="ann-1")
OWNING = {"tradewind.api.scheduler.v1.SchedulerService": Owners()}


def gate_of(authority: Authority, **options: Any) -> Gate:
    return Gate(authority, cache_s=60, owner_lookups=OWNING, quotas={"RunFlow": 2}, **options)


async def call_with(gate: Gate, token: str, work: Callable[[], Awaitable[None]]) -> None:
    """Call RunFlow, whose handler does `work`."""

    async def handler(_request: Any, _context: Any) -> None:
        await work()

    context: Any = Context(token)
    guarded = gate.around(SCHEDULER + "RunFlow", handler)

    async def one_call() -> None:
        await guarded(RUN, context)

    await asyncio.create_task(one_call())


async def test_quota_counts_only_calls_of_users() -> None:
    authority = Authority()
    gate = gate_of(authority)
    ann, operator = authority.token("ann"), authority.token("olga", Role.OPERATOR)
    for _ in range(3):
        await call(gate, "RunFlow", RUN, operator)
        await call(gate, "GetFlow", GetFlowRequest(flow_id="ann-1"), ann)
    assert authority.used == 0
    for _ in range(2):
        await call(gate, "RunFlow", RUN, ann)
    with pytest.raises(Exhausted) as refusal:
        await call(gate, "RunFlow", RUN, ann)
    assert (refusal.value.reason, refusal.value.retry_after_s) == ("QUOTA_EXCEEDED", 3600.0)
    assert str(refusal.value).endswith("(Europe/Berlin): the next day begins in 60 min")
    assert refusal.value.metadata["time_zone"] == "Europe/Berlin"
    assert authority.used == 2


@pytest.mark.parametrize("error", [NotFound("flow", "ann-1"), Exhausted("QUEUE_FULL", "full"), RuntimeError("broken")])
async def test_call_refused_by_its_handler_is_refunded(error: Exception) -> None:
    authority = Authority()

    async def refuse() -> None:
        assert authority.used == 1
        raise error

    with pytest.raises(type(error)):
        await call_with(gate_of(authority), authority.token("ann"), refuse)
    assert authority.used == 0


async def test_cancelled_call_counts_against_the_quota() -> None:
    """What it asked for may have been done."""
    authority = Authority()

    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await call_with(gate_of(authority), authority.token("ann"), cancelled)
    assert authority.used == 1


async def test_call_that_is_ended_because_its_token_is_revoked_counts_against_the_quota() -> None:
    """Otherwise a user could begin cycles without end: with a token for each, revoked while its call waits."""
    authority = Authority()
    gate = gate_of(authority)
    gate.start()
    await until(lambda: authority.changed is not None, "the gate listens to changes")
    token, waiting = authority.token("ann"), asyncio.Event()

    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    waits = asyncio.ensure_future(call_with(gate, token, wait))
    await asyncio.wait_for(waiting.wait(), 10)
    authority.set(token, None)
    with pytest.raises(Unauthenticated) as refusal:
        await asyncio.wait_for(waits, 10)
    assert refusal.value.reason == "TOKEN_INVALID"
    assert authority.used == 1
    await gate.stop()


async def test_rate_limited_call_uses_no_quota() -> None:
    authority = Authority()
    gate = gate_of(authority, rates={"RunFlow": Rate(1, 60_000)})
    ann = authority.token("ann")
    await call(gate, "RunFlow", RUN, ann)
    with pytest.raises(Exhausted) as refusal:
        await call(gate, "RunFlow", RUN, ann)
    assert refusal.value.reason == "RATE_LIMITED"
    assert authority.used == 1


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"quotas": {}, "rates": {"RunFlow": Rate(5, 1000)}}, "5/s: send at most 5 together"),
        ({"quotas": {"RunFlow": 5}}, "5 times a day: send at most 5 together"),
        ({"quotas": {"RunFlow": 5}, "rates": {"RunFlow": Rate(9, 1000)}}, "5 times a day: send at most 5 together"),
    ],
)
async def test_bulk_call_that_is_never_admitted_is_refused_for_good(options: dict[str, Any], limit: str) -> None:
    authority = Authority()

    async def eight() -> None:
        async with counted_calls("RunFlow", 8):
            raise AssertionError("eight are too many")

    gate = Gate(authority, cache_s=60, owner_lookups=OWNING, **options)
    with pytest.raises(InvalidInput, match=rf"items: 8 calls of RunFlow at once are never admitted, .* {limit}"):
        await call_with(gate, authority.token("ann"), eight)
    assert authority.used == 0


async def test_bulk_call_is_counted_at_once_and_refunded_individually() -> None:
    authority = Authority()
    gate, ann = gate_of(authority), authority.token("ann")

    async def two() -> None:
        async with counted_calls("RunFlow", 2):
            raise AssertionError("one of two is left")

    async def one() -> None:
        async with counted_calls("RunFlow", 1) as counted:
            assert authority.used == 2
            await counted.refund(1)
            await counted.refund()
        assert authority.used == 1

    with pytest.raises(Exhausted):
        await call_with(gate, ann, two)
    assert authority.used == 0
    await call_with(gate, ann, one)
    assert authority.used == 1


@pytest.mark.parametrize(("on_outage", "allowed"), [("refuse", False), ("reads", False), ("all", True)])
async def test_calls_with_quotas_during_an_access_outage_follow_the_setting(on_outage: Any, allowed: bool) -> None:
    authority = Authority()
    gate, ann = gate_of(authority, on_outage=on_outage), authority.token("ann")
    await call(gate, "GetFlow", GetFlowRequest(flow_id="ann-1"), ann)
    authority.away = True
    if allowed:
        await call(gate, "RunFlow", RUN, ann)
    else:
        with pytest.raises(Unavailable):
            await call(gate, "RunFlow", RUN, ann)


async def test_failed_refund_does_not_hide_the_error() -> None:
    authority = Authority()

    async def refuse() -> None:
        authority.away = True
        raise NotFound("flow", "ann-1")

    with pytest.raises(NotFound):
        await call_with(gate_of(authority), authority.token("ann"), refuse)
    assert authority.used == 1


def test_quotas_setting_is_parsed() -> None:
    assert quotas_of(" SubmitTask=1000, RunFlow=1,") == {"SubmitTask": 1000, "RunFlow": 1}
    too_large = ("RunFlow=1000000000", f"RunFlow={'5'.zfill(20)}999999999")
    for text in ("RunFlow", "RunFlow=", "RunFlow=0", "RunFlow=-1", "RunFlow=60/m", "=5", *too_large):
        with pytest.raises(ValueError, match=r"METHOD=COUNT|number of calls"):
            quotas_of(text)


@pytest.mark.parametrize(("field", "limit", "read"), [("rate_limits", "1/s", rates_in), ("quotas", "1", quotas_in)])
@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["Heartbeat"], "there is no Heartbeat that users may call; leave it out"),
        (["RunFlwo"], r'there is no RunFlwo that users may call; did you mean "RunFlow"\?'),
        (["RunFlow", "GetFlow", "RunFlow"], "RunFlow has two limits: leave one of them out"),
    ],
)
def test_limit_for_unknown_or_repeated_methods_is_refused(
    field: str, limit: str, read: Callable[[CommonSettings], Any], names: list[str], message: str
) -> None:
    settings = load_settings(CommonSettings, **{field: ",".join(f"{name}={limit}" for name in names)})
    with pytest.raises(ValueError, match=f"^TRADEWIND_{field.upper()}: {message}"):
        read(settings)
