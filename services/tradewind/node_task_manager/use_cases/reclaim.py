"""Reclaiming what a lost worker holds."""

import asyncio
from collections.abc import Sequence

import structlog

from tradewind.node_task_manager.ports.work import Held
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher

_log = structlog.get_logger(__name__)
_TRIES = 4
_PAUSE_S = 0.3


async def reclaim(worker_id: str, session: int, dispatcher: Dispatcher, undelivered: Sequence[Held] = ()) -> None:
    """Queue all node tasks of a worker again, each counted as lost, unless the worker has a newer session; 0 is any.

    Node tasks that never reached it, `undelivered`, do not count as lost. While the store is away, this is tried for a
    second and then left to the leases: after a longer outage, connected workers get a whole lease to come back.
    """
    for left in reversed(range(_TRIES)):
        try:
            await _reclaim(worker_id, session, dispatcher, undelivered)
            return
        except Exception as error:
            if not left:
                _log.warning("leases_left_to_lapse", worker_id=worker_id, error=error)
        await asyncio.sleep(_PAUSE_S)


async def _reclaim(worker_id: str, session: int, dispatcher: Dispatcher, undelivered: Sequence[Held]) -> None:
    shard = dispatcher.shard
    if undelivered:
        dispatcher.apply(await shard.tasks.give_back(worker_id, session, undelivered))
    while held := await shard.reader.held_by(worker_id):
        effects = await shard.tasks.give_back(worker_id, session, None)
        if effects.results != ("given_back",):
            return
        _log.info("leases_taken_back", worker_id=worker_id, node_tasks=len(held))
        dispatcher.apply(effects)
        dispatcher.request_claim()
