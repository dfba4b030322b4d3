"""Puts the registry together: the only place that names concrete classes."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

import grpc

from tradewind.api.registry.v1 import registry_service_pb2_grpc as pb2_grpc
from tradewind.registry.domain.limits import Lifetimes, Limits
from tradewind.registry.loops import sweep_loop
from tradewind.registry.ports import Stores
from tradewind.registry.rpc.handlers import RegistryHandlers
from tradewind.registry.settings import RegistrySettings
from tradewind.registry.stores.keys import Keys
from tradewind.registry.stores.redis import RedisRegistry
from tradewind.registry.stores.redis_doctor import RedisRegistryExaminer
from tradewind.server.clock import ScriptTime
from tradewind.server.doctor import Examiners, doctor_of, no_examiners
from tradewind.server.errors import ErrorTable
from tradewind.server.redis.data_version import DataVersion
from tradewind.server.redis.link import RedisLink
from tradewind.server.settings import variable_of
from tradewind.server.side_tasks import SideTasks
from tradewind.server.store_link import NoLink, StoreLink


class Registry:
    """The registry; bind it to a server. Raises ValueError, naming the variable, for invalid settings."""

    names: Sequence[str] = ("tradewind.api.registry.v1.RegistryService",)
    tracing = None

    errors = ErrorTable()

    def __init__(self, settings: RegistrySettings, *, stores: Stores | None = None) -> None:
        """Use `stores`, if given, instead of the Redis stores that the settings name."""
        lifetimes, limits = lifetimes_of(settings), Limits()
        self._link: StoreLink = NoLink()
        examiners: Examiners = no_examiners
        if stores is None:
            keys = Keys(settings.key_prefix)
            self._link = link = RedisLink(settings, DataVersion(keys.data_version), subscribes=False)
            stores = redis = RedisRegistry(link.client, keys, ScriptTime(), lifetimes, limits)
            examiners = RedisRegistryExaminer(redis).examiners
        self._stores = stores
        self._sweep_s = settings.registry_sweep_seconds
        self._doctor = doctor_of(examiners, settings)
        self._handlers = RegistryHandlers(stores, lifetimes, limits, self._doctor)
        self._tasks = SideTasks()

    def bind(self, server: grpc.aio.Server) -> None:
        """Add the service to a server."""
        pb2_grpc.add_RegistryServiceServicer_to_server(self._handlers, server)

    async def start(self) -> None:
        """Begin to work. Raises ConnectionError or UnsafeStore when the store cannot be used."""
        await self._link.open()
        self._tasks.begin(sweep_loop(self._stores, self._sweep_s))
        self._tasks.begin(self._doctor.watch())

    async def drain(self) -> None:
        """Do nothing: no call lasts long."""

    async def stop(self) -> None:
        """Stop working; the records stay."""
        async with AsyncExitStack() as last_to_first:
            last_to_first.push_async_callback(self._link.close)
            last_to_first.push_async_callback(self._tasks.end)

    async def not_ready(self) -> str | None:
        """Return why calls would fail at present, None when they would not."""
        return await self._link.not_ready()


def lifetimes_of(settings: RegistrySettings) -> Lifetimes:
    """Return how long entries live. Raises ValueError, naming the variable, for invalid settings."""
    try:
        return Lifetimes(
            heartbeat_interval=round(settings.registry_heartbeat_seconds * 1000),
            time_to_live=round(settings.registry_time_to_live_seconds * 1000),
            retention=round(settings.registry_retention_seconds * 1000),
        )
    except ValueError as error:
        raise ValueError(f"{variable_of('registry_time_to_live_seconds')}: {error}") from None
