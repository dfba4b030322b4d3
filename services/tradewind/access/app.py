"""Puts the access service together: the only place that names concrete classes."""

from collections.abc import Sequence
from contextlib import AsyncExitStack

import grpc

from tradewind.access.ports import Stores
from tradewind.access.rpc.handlers import AccessHandlers
from tradewind.access.settings import AccessSettings
from tradewind.access.stores.keys import Keys
from tradewind.access.stores.redis import RedisAccess
from tradewind.access.stores.redis_doctor import RedisAccessExaminer
from tradewind.access.use_cases.daily_quotas import DailyQuotas
from tradewind.access.use_cases.listeners import Listeners
from tradewind.access.use_cases.local_authority import LocalAuthority
from tradewind.access.use_cases.open_sessions import Lifetimes, OpenSessions
from tradewind.access.use_cases.users import has_admin
from tradewind.api.access.v1 import access_service_pb2_grpc as pb2_grpc
from tradewind.server.access.authority import Authority
from tradewind.server.access.gate_settings import certificates_in, quotas_in
from tradewind.server.access.roles import Role
from tradewind.server.clock import ScriptTime
from tradewind.server.doctor import Examiners, doctor_of, no_examiners
from tradewind.server.errors import ErrorTable
from tradewind.server.partitions import PARTITIONS
from tradewind.server.redis.data_version import DataVersion
from tradewind.server.redis.link import RedisLink
from tradewind.server.settings import variable_of
from tradewind.server.side_tasks import SideTasks
from tradewind.server.store_link import NoLink, StoreLink
from tradewind.server.streams import OpenStreams

FIRST_ADMIN = "admin"
"""The user whom a whole stack makes an admin."""


class Access:
    """The access service; bind it to a server behind a gate that asks its `authority`.

    Raises ValueError, naming the variable, for invalid settings.
    """

    names: Sequence[str] = ("tradewind.api.access.v1.AccessService",)
    tracing = None

    errors = ErrorTable()

    def __init__(self, settings: AccessSettings, *, stores: Stores | None = None) -> None:
        """Use `stores`, if given, instead of the Redis stores that the settings name."""
        if settings.service_token is None and not certificates_in(settings).names_servers:
            raise ValueError(
                f"{variable_of('service_token')} is required (a secret that all servers share), unless "
                f"{variable_of('tls_roles')} names their certificates, such as scheduler.tradewind.svc=service"
            )
        self._link: StoreLink = NoLink()
        examiners: Examiners = no_examiners
        if stores is None:
            keys = Keys(settings.key_prefix)
            self._link = link = RedisLink(settings, DataVersion(keys.data_version(), {"partitions": PARTITIONS}))
            stores = of_redis = RedisAccess(link.client, keys, ScriptTime(), link.subscriber)
            examiners = RedisAccessExaminer(of_redis, link.clock).examiners
        self._stores = stores
        self._listeners = Listeners(stores.changes)
        self._streams = OpenStreams()
        self._open = OpenSessions(stores.sessions, lifetimes_of(settings))
        quotas = DailyQuotas(stores.users, stores.quotas, self._link.clock, quotas_in(settings))
        authority = LocalAuthority(stores, self._listeners, quotas)
        self.authority: Authority = authority
        """The authority that gates in this process ask."""
        self._doctor = doctor_of(examiners, settings)
        self._handlers = AccessHandlers(
            stores, self._open, authority, quotas, self._listeners, self._streams, self._doctor
        )
        self._background = SideTasks()

    def bind(self, server: grpc.aio.Server) -> None:
        """Add the service to a server."""
        pb2_grpc.add_AccessServiceServicer_to_server(self._handlers, server)

    async def start(self) -> None:
        """Begin to work. Raises OSError or UnsafeStore when the store cannot be used."""
        await self._link.open()
        await self._listeners.start()
        self._background.begin(self._doctor.watch())

    async def drain(self) -> None:
        """End the streams of changes."""
        self._streams.drain()

    async def stop(self) -> None:
        """Stop working; the records stay."""
        async with AsyncExitStack() as last_to_first:
            last_to_first.push_async_callback(self._link.close)
            last_to_first.push_async_callback(self._background.end)
            last_to_first.callback(self._listeners.stop)

    async def not_ready(self) -> str | None:
        """Return why calls would fail at present, None when they would not."""
        return await self._link.not_ready()

    async def first_admin(self) -> str | None:
        """Return a new token of the admin FIRST_ADMIN, None if they are not one but others are.

        While there is no admin at all, FIRST_ADMIN becomes one. Raises Exhausted.
        """
        users = self._stores.users
        user = await users.find(FIRST_ADMIN)
        if user is None or user.role is not Role.ADMIN:
            if await has_admin(users):
                return None
            await users.set(FIRST_ADMIN, Role.ADMIN)
        token, _ = await self._open.token(FIRST_ADMIN, "made when the stack started", 0, Role.ADMIN)
        return token


def lifetimes_of(settings: AccessSettings) -> Lifetimes:
    """Return how long sessions and tokens live."""
    return Lifetimes(
        session=int(settings.access_session_seconds * 1000),
        idle=int(settings.access_idle_seconds * 1000),
        token=int(settings.access_token_days * 86_400_000),
    )
