"""Who gets through the gate, what is looked up for that, and how soon a change takes effect."""

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import pytest
import pytest_asyncio

from tests.gate_calls import Authority, Context, Owners, call
from tests.waiting import until
from tradewind.api.scheduler.v1.job_pb2 import StartBulkJobRequest
from tradewind.api.scheduler.v1.memory_pb2 import UpdateMemoryRequest
from tradewind.api.scheduler.v1.scheduler_service_pb2 import (
    GetFlowRequest,
    RegisterFlowRequest,
    RunFlowRequest,
)
from tradewind.server.access import callers
from tradewind.server.access.gate import Gate
from tradewind.server.access.identity import Identity
from tradewind.server.access.roles import Role
from tradewind.server.faults import Exhausted, PermissionDenied, Unauthenticated, Unavailable
from tradewind.server.rates import Rate

SECRET = "a secret of all the servers"
OWNING = {"tradewind.api.scheduler.v1.SchedulerService": Owners()}


@pytest.fixture
def authority() -> Authority:
    return Authority()


@pytest_asyncio.fixture
async def gate(authority: Authority) -> AsyncIterator[Gate]:
    """A gate that remembers tokens for a minute."""
    gate = Gate(
        authority,
        service_tokens=[SECRET],
        cache_s=60,
        owner_lookups=OWNING,
    )
    gate.start()
    await until(lambda: authority.changed is not None, "the gate listens to changes")
    yield gate
    await gate.stop()


@pytest.mark.parametrize("token", [None, "", "mistyped", "tw_00_" + "x" * 43, "tw_ff_" + "x" * 43])
async def test_call_without_a_valid_token_is_refused(gate: Gate, authority: Authority, token: str | None) -> None:
    with pytest.raises(Unauthenticated) as refusal:
        await call(gate, "GetFlow", GetFlowRequest(flow_id="ann-1"), token)
    assert refusal.value.reason == ("TOKEN_INVALID" if token else "TOKEN_MISSING")
    assert authority.asked == (1 if token and token.startswith("tw_00") else 0)


async def test_one_lookup_serves_many_calls(gate: Gate, authority: Authority) -> None:
    """Calls that come while the look-up is under way wait for the same answer."""
    token = authority.token("ann")
    answers = await asyncio.gather(*(call(gate, "GetFlow", GetFlowRequest(flow_id="ann-1"), token) for _ in range(20)))
    assert {identity.user_id for identity, _ in answers if identity} == {"ann"}
    for _ in range(20):
        await call(gate, "RunFlow", RunFlowRequest(flow_id="ann-1"), token)
    assert authority.asked == 1
    with pytest.raises(Unauthenticated):
        await call(gate, "GetFlow", GetFlowRequest(), "tw_00_" + "x" * 43)
    with pytest.raises(Unauthenticated):
        await call(gate, "GetFlow", GetFlowRequest(), "tw_00_" + "x" * 43)
    assert authority.asked == 2


async def test_tokens_that_somebody_makes_up_displace_no_known_ones(
    gate: Gate, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody may send any number of them; workers that are known go on while the access service is away."""
    monkeypatch.setattr(callers, "_CACHE_SIZE", 5)
    token = authority.token("ann")
    await call(gate, "GetFlow", GetFlowRequest(flow_id="ann-1"), token)
    for number in range(20):
        with pytest.raises(Unauthenticated):
            await call(gate, "GetFlow", GetFlowRequest(), f"tw_00_{number:043}")
    assert authority.asked == 21
    # The newest of them are remembered, and no more than those.
    for number, asked in ((19, 21), (15, 21), (14, 22)):
        with pytest.raises(Unauthenticated):
            await call(gate, "GetFlow", GetFlowRequest(), f"tw_00_{number:043}")
        assert authority.asked == asked
    authority.away = True
    await call(gate, "GetFlow", GetFlowRequest(flow_id="ann-1"), token)


async def test_service_token_needs_no_lookup(gate: Gate, authority: Authority) -> None:
    identity, _ = await call(gate, "GetFlow", GetFlowRequest(flow_id="ann-1"), SECRET)
    assert identity == Identity("service", Role.SERVICE)
    assert authority.asked == 0


@pytest.mark.parametrize(
    ("role", "method", "allowed"),
    [
        (Role.USER, "GetFlow", True),
        (Role.USER, "StartBulkJob", False),
        (Role.OPERATOR, "StartBulkJob", True),
        (Role.WORKER, "GetFlow", False),
        (Role.WORKER, "/tradewind.api.node_task_manager.v1.NodeTaskManagerService/Work", True),
        (Role.USER, "/tradewind.api.node_task_manager.v1.NodeTaskManagerService/Work", False),
        (Role.ADMIN, "/tradewind.api.node_task_manager.v1.NodeTaskManagerService/SubmitComponents", False),
        (Role.OPERATOR, "/tradewind.api.access.v1.AccessService/SetUser", False),
        (Role.ADMIN, "/tradewind.api.access.v1.AccessService/SetUser", True),
        (Role.USER, "/tradewind.api.trigger.v1.TriggerService/FindTrigger", False),
        (Role.OPERATOR, "/tradewind.api.trigger.v1.TriggerService/FindTrigger", True),
    ],
)
async def test_each_method_requires_a_minimum_role(
    gate: Gate, authority: Authority, role: Role, method: str, allowed: bool
) -> None:
    token = authority.token("ann", role)
    if allowed:
        identity, _ = await call(gate, method, StartBulkJobRequest(), token)
        assert identity is not None
        assert identity.role is role
        return
    with pytest.raises(PermissionDenied) as refusal:
        await call(gate, method, StartBulkJobRequest(), token)
    assert refusal.value.reason == "ROLE_TOO_SMALL"


async def test_method_without_a_rule_is_closed_to_everyone(gate: Gate, authority: Authority) -> None:
    with pytest.raises(PermissionDenied) as refusal:
        await call(gate, "InventedYesterday", GetFlowRequest(), authority.token("ann", Role.ADMIN))
    assert refusal.value.reason == "METHOD_CLOSED"
    with pytest.raises(Unauthenticated):
        await call(gate, "InventedYesterday", GetFlowRequest(), None)


async def test_health_checks_need_no_token(gate: Gate) -> None:
    identity, _ = await call(gate, "/grpc.health.v1.Health/Check", GetFlowRequest(), None)
    assert identity is None


async def test_users_reach_only_their_own_flows(gate: Gate, authority: Authority) -> None:
    ann, operator = authority.token("ann"), authority.token("olga", Role.OPERATOR)
    await call(gate, "GetFlow", GetFlowRequest(flow_id="ann-1"), ann)
    await call(gate, "GetFlow", GetFlowRequest(flow_id="bob-1"), operator)
    with pytest.raises(PermissionDenied) as refusal:
        await call(gate, "GetFlow", GetFlowRequest(flow_id="bob-1"), ann)
    assert refusal.value.reason == "NOT_OWNER"
    assert "bob" not in str(refusal.value)


async def test_caller_is_written_into_the_request(gate: Gate, authority: Authority) -> None:
    ann, operator = authority.token("ann"), authority.token("olga", Role.OPERATOR)
    for named in ("", "default", "ann"):
        _, request = await call(gate, "RegisterFlow", RegisterFlowRequest(user_id=named), ann)
        assert request.user_id == "ann"
    with pytest.raises(PermissionDenied):
        await call(gate, "RegisterFlow", RegisterFlowRequest(user_id="bob"), ann)
    _, request = await call(gate, "RegisterFlow", RegisterFlowRequest(user_id="bob"), operator)
    assert request.user_id == "bob"


async def test_role_changes_and_revocations_take_effect_at_once(gate: Gate, authority: Authority) -> None:
    """The gate would remember for a minute, but it is notified of changes."""
    token = authority.token("ann", Role.ADMIN)
    await call(gate, "StartBulkJob", StartBulkJobRequest(), token)
    authority.set(token, Role.USER)
    with pytest.raises(PermissionDenied):
        await call(gate, "StartBulkJob", StartBulkJobRequest(), token)
    authority.set(token, None)
    with pytest.raises(Unauthenticated):
        await call(gate, "GetFlow", GetFlowRequest(flow_id="ann-1"), token)


async def test_tokens_are_not_cached_beyond_the_cache_time(authority: Authority) -> None:
    """Without notifications of changes, each answer is valid only for its time."""
    gate = Gate(authority, cache_s=0, owner_lookups=OWNING)
    token = authority.token("ann")
    for times in range(1, 4):
        await call(gate, "GetFlow", GetFlowRequest(), token)
        assert authority.asked == times


@pytest.mark.parametrize(
    ("on_outage", "allowed"), [("refuse", []), ("reads", ["GetFlow"]), ("all", ["GetFlow", "RunFlow"])]
)
async def test_known_tokens_are_served_as_configured_during_an_access_outage(
    authority: Authority, on_outage: Any, allowed: list[str]
) -> None:
    """What is known about a token serves reads, or whatever the setting allows; unknown tokens are refused."""
    gate = Gate(authority, cache_s=0, on_outage=on_outage, owner_lookups=OWNING)
    token = authority.token("ann")
    await call(gate, "GetFlow", GetFlowRequest(), token)
    authority.away = True
    for method, request in (("GetFlow", GetFlowRequest()), ("RunFlow", RunFlowRequest())):
        if method in allowed:
            await call(gate, method, request, token)
            continue
        with pytest.raises(Unavailable):
            await call(gate, method, request, token)
    with pytest.raises(Unavailable):
        await call(gate, "GetFlow", GetFlowRequest(), authority.token("new"))


@pytest.mark.parametrize(("on_outage", "allowed"), [("refuse", False), ("reads", True), ("all", True)])
async def test_known_workers_continue_as_configured_during_an_access_outage(
    authority: Authority, on_outage: Any, allowed: bool
) -> None:
    gate = Gate(authority, cache_s=0, on_outage=on_outage, owner_lookups=OWNING)
    known, new = authority.token("pool", Role.WORKER), authority.token("new", Role.WORKER)
    await call(gate, "UpdateMemory", UpdateMemoryRequest(), known)
    authority.away = True
    if allowed:
        await call(gate, "UpdateMemory", UpdateMemoryRequest(), known)
    else:
        with pytest.raises(Unavailable):
            await call(gate, "UpdateMemory", UpdateMemoryRequest(), known)
    with pytest.raises(Unavailable):
        await call(gate, "UpdateMemory", UpdateMemoryRequest(), new)


async def test_stream_needs_one_lookup_and_ends_when_its_token_is_revoked(gate: Gate, authority: Authority) -> None:
    token = authority.token("pool", Role.WORKER)
    messages = 0
    go = asyncio.Semaphore(0)

    async def work(request: Any, context: Any) -> None:
        nonlocal messages
        while True:
            await go.acquire()
            messages += 1

    context: Any = Context(token)
    method = "/tradewind.api.node_task_manager.v1.NodeTaskManagerService/Work"
    stream = asyncio.ensure_future(gate.around(method, work)(object(), context))
    for _ in range(1000):
        go.release()
    await until(lambda: messages == 1000, "all messages have come")
    assert authority.asked == 1
    assert authority.changed is not None
    authority.changed("pool")
    await until(lambda: authority.asked == 2, "the token was looked up again")
    assert not stream.done()
    authority.set(token, None)
    with pytest.raises(Unauthenticated) as refusal:
        await asyncio.wait_for(stream, 10)
    assert refusal.value.reason == "TOKEN_INVALID"


async def test_stream_ends_if_its_token_is_revoked_while_opening(authority: Authority) -> None:
    """Its caller was already known, and nothing else would ever check the stream again."""
    looking_up, proceed = asyncio.Event(), asyncio.Event()

    class SlowOwners(Owners):
        async def owners(self, request: Any) -> Collection[str]:
            looking_up.set()
            await proceed.wait()
            return await super().owners(request)

    gate = Gate(authority, cache_s=60, owner_lookups={"tradewind.api.scheduler.v1.SchedulerService": SlowOwners()})
    gate.start()
    await until(lambda: authority.changed is not None, "the gate listens to changes")

    async def watch(request: Any, context: Any) -> None:
        await asyncio.Event().wait()

    token = authority.token("ann")
    context: Any = Context(token)
    method = "/tradewind.api.scheduler.v1.SchedulerService/WatchFlow"
    stream = asyncio.ensure_future(gate.around(method, watch)(GetFlowRequest(flow_id="ann-1"), context))
    await asyncio.wait_for(looking_up.wait(), 10)
    authority.set(token, None)
    proceed.set()
    with pytest.raises(Unauthenticated):
        await asyncio.wait_for(stream, 10)
    await gate.stop()


async def test_stream_is_rechecked_until_its_token_can_be_looked_up(gate: Gate, authority: Authority) -> None:
    """Access was away for a moment, but the connection that reports changes was not: it reports none twice."""

    async def work(request: Any, context: Any) -> None:
        await asyncio.Event().wait()

    token = authority.token("pool", Role.WORKER)
    context: Any = Context(token)
    method = "/tradewind.api.node_task_manager.v1.NodeTaskManagerService/Work"
    stream = asyncio.ensure_future(gate.around(method, work)(object(), context))
    await until(lambda: authority.asked == 1, "the stream is open")
    authority.away = True
    authority.set(token, None)
    await until(lambda: authority.asked == 2, "the lookup failed")
    authority.away = False
    with pytest.raises(Unauthenticated):
        await asyncio.wait_for(stream, 10)


async def test_tokens_are_rechecked_once_each_and_concurrently_after_a_change(
    gate: Gate, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(request: Any, context: Any) -> None:
        await asyncio.Event().wait()

    tokens = [authority.token("pool", Role.WORKER) for _ in range(5)]
    opened = gate.around("/tradewind.api.node_task_manager.v1.NodeTaskManagerService/Work", work)
    contexts: list[Any] = [Context(token) for token in tokens * 4]
    streams = [asyncio.ensure_future(opened(object(), context)) for context in contexts]
    await until(lambda: len(gate._streams.get("pool", ())) == 20, "all streams are open")
    authorize, together = authority.authorize, asyncio.Barrier(5)

    async def asked(digest: str) -> Identity:
        await together.wait()
        return await authorize(digest)

    monkeypatch.setattr(authority, "authorize", asked)
    authority.roles.clear()
    authority.asked = 0
    assert authority.changed is not None
    authority.changed("pool")
    ends = await asyncio.wait_for(asyncio.gather(*streams, return_exceptions=True), 10)
    assert [getattr(end, "reason", end) for end in ends] == ["TOKEN_INVALID"] * 20
    assert authority.asked == 5


async def test_only_calls_of_users_to_limited_methods_are_counted(authority: Authority) -> None:
    gate = Gate(authority, owner_lookups=OWNING, rates={"RunFlow": Rate(2, 60_000)})
    ann, operator = authority.token("ann"), authority.token("olga", Role.OPERATOR)
    for _ in range(5):
        await call(gate, "GetFlow", GetFlowRequest(flow_id="ann-1"), ann)
        await call(gate, "RunFlow", RunFlowRequest(flow_id="ann-1"), operator)
    assert authority.counted == []
    for _ in range(2):
        await call(gate, "RunFlow", RunFlowRequest(flow_id="ann-1"), ann)
    with pytest.raises(Exhausted) as refusal:
        await call(gate, "RunFlow", RunFlowRequest(flow_id="ann-1"), ann)
    assert (refusal.value.reason, refusal.value.retry_after_s) == ("RATE_LIMITED", 1.5)
    assert str(refusal.value) == "each user may call RunFlow at most 2/m: try again in 2 s"
    assert authority.counted == [("ann", "RunFlow", 1)] * 3


@pytest.mark.parametrize(
    ("on_outage", "allowed"), [("reads", ["GetFlow"]), ("refuse", []), ("all", ["GetFlow", "RunFlow"])]
)
async def test_rate_limited_calls_during_an_access_outage_follow_the_setting(
    authority: Authority, on_outage: Any, allowed: list[str]
) -> None:
    rates = {"RunFlow": Rate(2, 60_000), "GetFlow": Rate(2, 60_000)}
    gate = Gate(authority, cache_s=60, on_outage=on_outage, owner_lookups=OWNING, rates=rates)
    ann = authority.token("ann")
    await call(gate, "GetFlow", GetFlowRequest(), ann)
    authority.away = True
    for method, request in (("GetFlow", GetFlowRequest()), ("RunFlow", RunFlowRequest())):
        if method in allowed:
            await call(gate, method, request, ann)
            continue
        with pytest.raises(Unavailable):
            await call(gate, method, request, ann)
