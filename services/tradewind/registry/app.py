"""The registry put together: the only place that names concrete classes."""

import asyncio
from collections.abc import Sequence

import grpc
from redis.exceptions import RedisError

from tradewind.api.registry.v1 import registry_service_pb2_grpc as pb2_grpc
from tradewind.registry.domain.limits import Lifetimes, Limits
from tradewind.registry.loops import SweepLoop
from tradewind.registry.rpc.handlers import RegistryHandlers
from tradewind.registry.settings import RegistrySettings
from tradewind.registry.stores.redis import RedisNodeTypes, RedisWorkers
from tradewind.registry.stores.redis_doctor import RedisRegistryExaminer
from tradewind.server.clock import ScriptTime
from tradewind.server.doctor import doctor_of
from tradewind.server.ending import end_tasks
from tradewind.server.errors import ErrorTable
from tradewind.server.redis.client import connect, require_reachable, require_safe_policy
from tradewind.server.settings import variable_of


class Registry:
    """The service, to be bound to a server. Raises ValueError, naming the variable, for settings that do not fit."""

    names: Sequence[str] = ("tradewind.api.registry.v1.RegistryService",)

    errors = ErrorTable()

    def __init__(self, settings: RegistrySettings) -> None:
        lifetimes, limits, time = _lifetimes(settings), Limits(), ScriptTime()
        password = settings.store_password.get_secret_value() if settings.store_password else None
        client = self._client = connect(settings.store_url, user=settings.store_user, password=password)
        workers = RedisWorkers(client, settings.key_prefix, time, lifetimes, limits)
        node_types = RedisNodeTypes(client, settings.key_prefix, time, lifetimes, limits)
        self._doctor = doctor_of(RedisRegistryExaminer(workers).examiners, settings)
        self._handlers = RegistryHandlers(workers, node_types, lifetimes, limits, self._doctor)
        self._watching: asyncio.Task[None] | None = None
        self._sweep = SweepLoop(workers, settings.registry_sweep_seconds)

    def bind(self, server: grpc.aio.Server) -> None:
        """Serve on this server."""
        pb2_grpc.add_RegistryServiceServicer_to_server(self._handlers, server)

    async def start(self) -> None:
        """Begin to work. Raises ConnectionError or UnsafeStore when the store will not do."""
        await require_reachable(self._client)
        await require_safe_policy(self._client)
        self._sweep.start()
        self._watching = asyncio.create_task(self._doctor.watch())

    async def drain(self) -> None:
        """Nothing to do: no call lasts."""

    async def stop(self) -> None:
        """End; what is on record stays."""
        if self._watching is not None:
            await end_tasks([self._watching])
        await self._sweep.stop()
        await self._client.aclose()

    async def not_ready(self) -> str | None:
        """Return why calls would fail now, None when they would not."""
        try:
            await self._client.ping()
        except (RedisError, OSError) as error:
            return f"the store does not answer: {error}"
        return None


def _lifetimes(settings: RegistrySettings) -> Lifetimes:
    try:
        return Lifetimes(
            heartbeat_interval=int(settings.registry_heartbeat_seconds * 1000),
            time_to_live=int(settings.registry_time_to_live_seconds * 1000),
            retention=int(settings.registry_retention_seconds * 1000),
        )
    except ValueError as error:
        raise ValueError(f"{variable_of('registry_time_to_live_seconds')}: {error}") from None
