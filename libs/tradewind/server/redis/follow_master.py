"""Follows the master that Sentinel names, also while the server that was the master before still takes writes."""

import structlog

from tradewind.server.beats import beat
from tradewind.server.redis.client import REDIS_ERRORS
from tradewind.server.redis.piped import PipedRedis
from tradewind.server.redis.subscriber import Subscriber

_EVERY_S = 1.0

_log = structlog.get_logger(__name__)


async def follow_master(client: PipedRedis, subscriber: Subscriber) -> None:
    """Keep asking Sentinel, and leave a server that it no longer names.

    After a failover by hand, Sentinel makes the old master a replica only some ten seconds later, and what was written
    to it meanwhile is lost.
    """
    while True:
        await beat(_EVERY_S)
        try:
            master = await client.follow_master()
        except (*REDIS_ERRORS, OSError) as error:
            _log.debug("store_master_unknown", error=error)
        else:
            subscriber.leave_unless_at(master)
