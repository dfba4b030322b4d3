"""Daily quotas at the gate: refused calls are refunded, calls that may have had an effect are not."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.gate_calls import SCHEDULER, Authority, Context, Owners, call
from tradewind.api.scheduler.v1.scheduler_service_pb2 import GetFlowRequest, RunFlowRequest
from tradewind.server.access.gate import Gate
from tradewind.server.access.limits import quotas_of
from tradewind.server.access.metering import counted_calls
from tradewind.server.access.opening import quotas_in, rates_in
from tradewind.server.access.roles import Role
from tradewind.server.faults import Exhausted, NotFound, Unavailable
from tradewind.server.rates import Rate
from tradewind.server.settings import CommonSettings, load_settings

RUN = RunFlowRequest(flow_id="ann-1")


def gate_of(authority: Authority, **options: Any) -> Gate:
    owning = {"tradewind.api.scheduler.v1.SchedulerService": Owners()}
    return Gate(authority, cache_s=60, owning=owning, quotas={"RunFlow": 2}, **options)


async def served(gate: Gate, token: str, work: Callable[[], Awaitable[None]]) -> None:
    """Call RunFlow, whose handler does `work`."""

    async def handler(_request: Any, _context: Any) -> None:
        await work()

    context: Any = Context(token)
    surrounded = gate.around(SCHEDULER + "RunFlow", handler)

    async def one_call() -> None:
        await surrounded(RUN, context)

    await asyncio.create_task(one_call())


async def test_a_day_is_used_up_by_users_and_for_them_only() -> None:
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
    assert refusal.value.metadata["time_zone"] == "Europe/Berlin"
    assert authority.used == 2


@pytest.mark.parametrize("error", [NotFound("flow", "ann-1"), Exhausted("QUEUE_FULL", "full"), RuntimeError("broken")])
async def test_a_call_that_is_refused_afterwards_is_given_back(error: Exception) -> None:
    authority = Authority()

    async def refuse() -> None:
        assert authority.used == 1
        raise error

    with pytest.raises(type(error)):
        await served(gate_of(authority), authority.token("ann"), refuse)
    assert authority.used == 0


async def test_a_call_that_is_cancelled_counts() -> None:
    """What it asked for may have been done."""
    authority = Authority()

    async def cancelled() -> None:
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await served(gate_of(authority), authority.token("ann"), cancelled)
    assert authority.used == 1


async def test_a_call_beyond_the_rate_uses_nothing_of_the_day() -> None:
    authority = Authority()
    gate = gate_of(authority, rates={"RunFlow": Rate(1, 60_000)})
    ann = authority.token("ann")
    await call(gate, "RunFlow", RUN, ann)
    with pytest.raises(Exhausted) as refusal:
        await call(gate, "RunFlow", RUN, ann)
    assert refusal.value.reason == "RATE_LIMITED"
    assert authority.used == 1


async def test_many_calls_in_one_are_counted_together_and_given_back_one_by_one() -> None:
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
        await served(gate, ann, two)
    assert authority.used == 0
    await served(gate, ann, one)
    assert authority.used == 1


@pytest.mark.parametrize(("on_outage", "goes_on"), [("refuse", False), ("reads", False), ("all", True)])
async def test_quotas_while_access_is_away(on_outage: Any, goes_on: bool) -> None:
    authority = Authority()
    gate, ann = gate_of(authority, on_outage=on_outage), authority.token("ann")
    await call(gate, "GetFlow", GetFlowRequest(flow_id="ann-1"), ann)
    authority.away = True
    if goes_on:
        await call(gate, "RunFlow", RUN, ann)
    else:
        with pytest.raises(Unavailable):
            await call(gate, "RunFlow", RUN, ann)


async def test_what_cannot_be_given_back_does_not_hide_the_refusal() -> None:
    authority = Authority()

    async def refuse() -> None:
        authority.away = True
        raise NotFound("flow", "ann-1")

    with pytest.raises(NotFound):
        await served(gate_of(authority), authority.token("ann"), refuse)
    assert authority.used == 1


def test_quotas_are_read_from_a_setting() -> None:
    assert quotas_of(" SubmitTask=1000, RunFlow=1,") == {"SubmitTask": 1000, "RunFlow": 1}
    for text in ("RunFlow", "RunFlow=", "RunFlow=0", "RunFlow=-1", "RunFlow=60/m", "=5", "RunFlow=1000000000"):
        with pytest.raises(ValueError, match=r"METHOD=COUNT|number of calls"):
            quotas_of(text)


@pytest.mark.parametrize(("field", "limit", "read"), [("rate_limits", "1/s", rates_in), ("quotas", "1", quotas_in)])
@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["Heartbeat"], "there is no Heartbeat that users may call; leave it out"),
        (["RunFlwo"], r'there is no RunFlwo that users may call; did you mean "RunFlow"\?'),
        (["RunFlow", "GetFlow", "RunFlow"], "RunFlow has two limits: leave one of them out"),
    ],
)
def test_a_limit_that_would_not_count_is_refused(
    field: str, limit: str, read: Callable[[CommonSettings], Any], names: list[str], says: str
) -> None:
    settings = load_settings(CommonSettings, **{field: ",".join(f"{name}={limit}" for name in names)})
    with pytest.raises(ValueError, match=f"^TRADEWIND_{field.upper()}: {says}"):
        read(settings)
