"""Follows the master that Sentinel names, also while the server that was the master before still takes writes."""

import structlog

from tradewind.server.beats import beat
from tradewind.server.redis.client import REDIS_ERRORS
from tradewind.server.redis.piped import PipedRedis
from tradewind.server.redis.subscriber import Subscriber

_EVERY_S = 1.0
_LOOKS = 5
"""How often it looks after the subscriber once the master has changed, whose Sentinel may hear of it seconds later."""

_log = structlog.get_logger(__name__)


async def follow_master(client: PipedRedis, subscriber: Subscriber) -> None:
    """Keep asking Sentinel, and leave a server that it no longer names.

    After a failover by hand, Sentinel makes the old master a replica only some ten seconds later, and what was written
    to it meanwhile is lost.
    """
    known, looks = None, 0
    while True:
        await beat(_EVERY_S)
        try:
            master = await client.follow_master()
        except (*REDIS_ERRORS, OSError) as error:
            _log.debug("store_master_unknown", error=error)
            continue
        if master != known:
            known, looks = master, _LOOKS
        # Not for ever: a Sentinel that is cut off may go on naming the old master to one of the two.
        if looks:
            looks -= 1
            subscriber.leave_unless_at(master)
