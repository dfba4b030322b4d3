"""The link of a service to its store in Redis: a client, and a subscriber if the service listens for messages."""

from typing import cast

import structlog

from tradewind.server.health import ReadOnly
from tradewind.server.redis.address import StoreAddress
from tradewind.server.redis.checks import require_functions, require_reachable, require_safe_policy, why_unusable
from tradewind.server.redis.client import REDIS_ERRORS, connect
from tradewind.server.redis.connections import WRITE_REFUSALS
from tradewind.server.redis.data_version import DataVersion, require_data_version
from tradewind.server.redis.follow_master import follow_master
from tradewind.server.redis.outages import message_of
from tradewind.server.redis.piped import PipedRedis
from tradewind.server.redis.store_clock import StoreClock
from tradewind.server.redis.subscriber import Subscriber
from tradewind.server.settings import CommonSettings, text_of
from tradewind.server.side_tasks import SideTasks

_EMPTIED = "it began anew without the data it had: stop the services, and restore a backup"
_MAX_REFUSALS = 3
"""A store counts as read-only after refusing writes at this many checks in a row; a brief refusal is ignored."""

_log = structlog.get_logger(__name__)


class RedisLink:
    """Implements StoreLink, as the store user in the settings."""

    def __init__(self, settings: CommonSettings, data: DataVersion, *, subscribes: bool = True) -> None:
        """Take the data version that the service works with. With `subscribes`, the subscriber is started as well."""
        self._data = data
        user, password = settings.store_user, text_of(settings.store_password)
        tls = settings.store_tls_files()
        self.client = connect(settings.store_url, user=user, password=password, tls=tls)
        self.subscriber = Subscriber(settings.store_url, user=user, password=password, tls=tls)
        self._subscribes = subscribes
        self._behind_sentinel = StoreAddress.parse(settings.store_url).kind == "sentinel"
        self._refusals = 0
        self.clock = StoreClock(self.client)
        self._tasks = SideTasks()

    async def open(self) -> None:
        await require_reachable(self.client)
        await require_safe_policy(self.client)
        await require_data_version(self.client, self._data)
        await require_functions(self.client, self._data.key)
        await self.clock.sync()
        self._tasks.begin(self.clock.run())
        if self._behind_sentinel:
            self._tasks.begin(follow_master(cast(PipedRedis, self.client), self.subscriber))
        if self._subscribes:
            self.subscriber.start()
            self.client.losses.listen(self.subscriber.doubt)

    async def close(self) -> None:
        try:
            await self._tasks.end()
            await self.subscriber.stop()
        finally:
            await self.client.end()

    async def not_ready(self) -> str | None:
        try:
            refusal = await self._try_write()
        except (*REDIS_ERRORS, OSError) as error:
            return why_unusable(error)
        self._refusals = self._refusals + 1 if refusal else 0
        return ReadOnly(f"the store accepts no writes: {refusal}") if self._refusals >= _MAX_REFUSALS else None

    async def write_refusal(self) -> str:
        refusal = await self._try_write()
        return message_of(refusal) if refusal else ""

    async def _try_write(self) -> Exception | None:
        """Return how the store refuses a write; None when it accepts it. Raises RedisError when it does not answer."""
        try:
            # The version is there already, so this changes nothing; but a store that accepts no writes refuses it.
            written = await self.client.call(self._data.key, "SET", self._data.key, self._data.text, "NX")
        except WRITE_REFUSALS as error:
            return error
        if written:
            _log.error("store_emptied", key=self._data.key, hint=_EMPTIED)
        return None
