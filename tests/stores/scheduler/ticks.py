"""Flows with a schedule, and times of it that are due."""

from typing import Any

from tests.stores.scheduler.bench import MINUTE, Bench
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.server.partitions import partition_of


async def running(bench: Bench, **changes: Any) -> int:
    """Register and start a flow; return its first planned time."""
    await bench.register(**changes)
    await bench.change_status(FlowStatus.RUNNING)
    return bench.now


async def tick(bench: Bench, due_ms: int) -> ChainState | None:
    """Judge a due time, and return the state of the cycle that began."""
    answer = await bench.begin(await bench.scheduled_request(due_ms))
    assert answer.outcome in (BeginOutcome.BEGUN, BeginOutcome.SETTLED), answer
    return answer.state


async def blocked(bench: Bench) -> ChainState:
    """Let a planned time wait for a cycle of flow `f`, which is known to be in its way; return that cycle's state."""
    due = await running(bench, overlap=OverlapPolicy.QUEUE_ONE)
    first = await tick(bench, due)
    assert first is not None
    bench.clock.advance(MINUTE)
    await tick(bench, due + MINUTE)
    assert await bench.stores.firings.waiting([partition_of("f")], 9) == ["f"], "it has not been tried yet"
    assert (await bench.begin(bench.queued_request())).outcome is BeginOutcome.OVERLAP
    assert await bench.stores.firings.waiting([partition_of("f")], 9) == []
    return first
