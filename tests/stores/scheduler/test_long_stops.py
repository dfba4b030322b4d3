"""Stopping a flow with more open runs than one call of the script marks, while others change the flow."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.servers import RedisServer
from tests.stores.scheduler.bench import Bench, redis_stores
from tradewind.scheduler.domain.flow_record import StatusOutcome
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.stores.redis.scripts import Scripted
from tradewind.server.clock import ManualClock

RUNS, AT_ONCE = 600, 500


@pytest.fixture
def bench(redis_server: RedisServer) -> Bench:
    clock = ManualClock()
    return Bench(redis_stores(redis_server, clock), clock)


def after_the_next_call(monkeypatch: pytest.MonkeyPatch, act: Callable[[], Awaitable[object]]) -> None:
    """Act once, between the next call of a script and what follows it."""
    call = Scripted.call_for_flow

    async def call_and_act(self: Scripted, *args: Any, **more: Any) -> Any:
        reply = await call(self, *args, **more)
        if pending:
            # Popped first: the call that it makes must go through.
            await pending.pop()()
        return reply

    pending = [act]
    monkeypatch.setattr(Scripted, "call_for_flow", call_and_act)


async def test_flow_started_during_a_long_stop_keeps_running(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    await bench.register()
    await bench.change_status(FlowStatus.RUNNING)
    await bench.stores.cycles.begin([bench.request() for _ in range(RUNS)])

    after_the_next_call(monkeypatch, lambda: bench.change_status(FlowStatus.RUNNING))
    answer = await bench.change_status(FlowStatus.STOPPED)

    assert (await bench.flow()).status is FlowStatus.RUNNING
    assert (answer.outcome, answer.found) == (StatusOutcome.CHANGED, FlowStatus.RUNNING)
    assert len(answer.stopping) == AT_ONCE
