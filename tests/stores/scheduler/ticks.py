"""Flows with a schedule, and times of it that are due."""

from typing import Any

from tests.stores.scheduler.bench import Bench
from tradewind.scheduler.domain.beginning import BeginOutcome
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.flow_status import FlowStatus


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
