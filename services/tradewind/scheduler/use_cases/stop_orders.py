"""The orders that stop runs at the node task manager."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tradewind.scheduler.domain.chain_state import ChainState, StopRequest
from tradewind.scheduler.domain.submission import StopOrder
from tradewind.scheduler.ports.peers import NodeTasks

_AT_ONCE = 20


def stop_orders(state: ChainState, *, with_handlers: bool = False) -> list[StopOrder]:
    """Return the orders that stop a run.

    Components that handle the outcome are spared, unless `with_handlers` is set or the stop is forced.
    """
    order = stop_order(state)
    handlers = state.facts.handlers
    if handlers is None or not (with_handlers or (state.stop is not None and state.stop.forced)):
        return [order]
    return [order, *(replace(order, component_id=each) for each in handlers.all if each not in state.components)]


def stop_order(state: ChainState) -> StopOrder:
    """Return the order that stops a run."""
    stop = state.stop or StopRequest("system", "", 0)
    return StopOrder(state.name, state.facts.run_id, state.facts.user_id, stop.reason, stop.by, state.facts.deadline_ms)


async def stop_all(node_tasks: NodeTasks, orders: Sequence[StopOrder]) -> None:
    """Send orders, 20 at a time. Raises PeerUnavailable, PeerRefused."""
    for first in range(0, len(orders), _AT_ONCE):
        await asyncio.gather(*map(node_tasks.stop, orders[first : first + _AT_ONCE]))
