"""The whole stack: an embedded store and all services on one server."""

import asyncio
import errno
import json
import secrets
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog
from redis.exceptions import RedisError

from tradewind.access.app import Access
from tradewind.server.bootstrap import Server, StartError
from tradewind.server.channels import local_address_of
from tradewind.server.faults import Fault
from tradewind.server.listening import listen_error
from tradewind.server.logs import quieten_logging
from tradewind.server.metrics import MetricsEndpoint
from tradewind.server.open_files import TOO_MANY_OPEN_FILES
from tradewind.server.private_file import write_private
from tradewind.server.process import store_watch_of
from tradewind.server.redis.backup import STACK
from tradewind.server.redis.embedded import EmbeddedStore, EmbeddedStoreError, free_port
from tradewind.server.redis.watch import METRICS
from tradewind.server.settings import CommonSettings, SettingsError, load_settings, variable_of
from tradewind.server.side_tasks import SideTasks
from tradewind.server.telemetry import open_tracing
from tradewind.standalone.services import ACL_USERS, Login, Stack, build_services
from tradewind.standalone.settings import StandaloneSettings

_PORT_ATTEMPTS = 5
_STORE_CHECK_S = 0.2

_log = structlog.get_logger(__name__)


class StandaloneError(Exception):
    """Raised when the stack cannot be started; the message says why and what to do."""


class Standalone:
    """Every service on one server: `async with Standalone(data=tmp_path, port=0) as stack: Client(stack.address)`.

    With `auth`, calls need a token; the first admin's token is in a file beside the data.
    Parameters that are left out come from the environment, see StandaloneSettings. Without `store_url`, or with "", the
    stack has a store of its own, which keeps its data in the directory `data` and is restarted when it dies. Start the
    stack in the main thread: on Linux the store dies with the thread that started it.
    """

    def __init__(
        self,
        data: Path | str | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        store_url: str | None = None,
        node_task_manager_shards: int | None = None,
        auth: bool | None = None,
    ) -> None:
        """Raises StandaloneError when the environment holds wrong settings."""
        overrides = {
            "data": data,
            "host": host,
            "port": port,
            "store_url": store_url,
            "node_task_manager_shards": node_task_manager_shards,
            "auth": auth,
        }
        try:
            self.settings = load_settings(
                StandaloneSettings, **{name: value for name, value in overrides.items() if value is not None}
            )
        except SettingsError as error:
            raise StandaloneError(f"invalid settings:\n{error}") from error
        self._store: EmbeddedStore | None = None
        self._server: Server | None = None
        self.new_admin_token: str | None = None
        """The first admin's token if this start has made it; it is in `admin_token_file` as well.

        A start makes it if that file does not exist, and the first admin is still an admin or nobody is."""
        self.has_flows = False
        """Whether there were flows when the stack started."""
        self._metrics = MetricsEndpoint(self.settings.metrics_host or self.settings.host, self.settings.metrics_port)
        self._tasks = SideTasks()

    @property
    def address(self) -> str:
        """`host:port` at which clients on this machine reach every service; known once the stack has started."""
        if self._server is None:
            raise RuntimeError("the stack has not been started")
        return local_address_of(self.settings.host, self._server.port)

    @property
    def admin_token_file(self) -> Path:
        """The file with the first admin's token, readable by its owner only; it exists only with `auth`."""
        return self.settings.data / "admin.token"

    @property
    def store_pid(self) -> int | None:
        """Process id of the embedded store while it runs."""
        return self._store.pid if self._store is not None else None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the store, then the services. Raises StandaloneError; after a failure nothing stays running."""
        quieten_logging(self.settings.log_level)
        try:
            await self._start()
        except BaseException as error:
            await self.stop()
            if isinstance(error, OSError) and error.errno == errno.EMFILE:
                raise StandaloneError(TOO_MANY_OPEN_FILES) from error
            if isinstance(error, OSError) and error.filename is not None:
                raise StandaloneError(f"cannot use {error.filename}: {error.strerror}") from error
            if isinstance(error, EmbeddedStoreError | SettingsError | StartError | Fault | OSError | ValueError):
                raise StandaloneError(str(error)) from error
            if isinstance(error, RedisError):
                raise StandaloneError(f"the store failed while the stack was starting: {error}") from error
            raise

    async def stop(self) -> None:
        """Stop the services in bounded time, then the store. Safe to repeat."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()
        await self._tasks.end()
        await self._metrics.close()
        if self._store is not None:
            await self._store.stop()

    async def _start(self) -> None:
        settings = self.settings
        error = listen_error(settings.host, settings.port)
        if error is not None:
            raise StandaloneError(error)
        shards = settings.node_task_manager_shards or 1
        if not settings.store_url:
            self._store = EmbeddedStore(settings.data, acl_users=ACL_USERS)
            await self._store.start()
            shards = _stored_shards(settings.data / STACK, settings.node_task_manager_shards)
            self._tasks.begin(self._supervise_store(self._store))
        await self._metrics.open()
        if settings.metrics_port:
            self._tasks.begin(store_watch_of(self._settings_of_watch()).run())
        stack = await self._serve(shards)
        if self._store is not None and not (settings.data / STACK).exists():
            # Only now are the data known to have this number: a restored snapshot has no such file.
            write_private(settings.data / STACK, json.dumps({"node_task_manager_shards": shards}) + "\n")
        self.has_flows = await stack.scheduler.has_flows()
        if stack.access is not None:
            await self._write_admin_token(stack.access)

    async def _serve(self, shards: int) -> Stack:
        """Start the services, on a free port if the settings name none, and return them."""
        settings = self.settings
        attempts_left = _PORT_ATTEMPTS
        while True:
            # The services need to know the port before the server has it.
            port = settings.port or free_port()
            stack = build_services(
                self._login,
                local_address_of(settings.host, port),
                shards,
                single_replica=self._store is not None,
                service_token=secrets.token_urlsafe(32) if settings.auth else None,
            )
            server = Server(
                stack.services,
                gate=stack.gate,
                host=settings.host,
                port=port,
                drain_s=settings.drain_seconds,
                max_message_bytes=settings.max_message_bytes,
                max_connection_age_s=settings.max_connection_age_seconds,
                max_connection_idle_s=settings.max_connection_idle_seconds,
                max_connections=settings.max_connections,
                tracing=open_tracing("tradewind", settings.otlp_endpoint, settings.trace_sampling),
                tls=settings,
            )
            try:
                await server.start()
            except StartError:
                attempts_left -= 1
                # Somebody may take the free port before the server listens on it; then try another one.
                if settings.port or listen_error(settings.host, port) is None or not attempts_left:
                    raise
            else:
                self._server = server
                return stack

    async def _write_admin_token(self, access: Access) -> None:
        """Write a token of the first admin to its file, unless the file exists or others are admins."""
        path = self.admin_token_file
        if path.exists():
            return
        self.new_admin_token = await access.first_admin()
        if self.new_admin_token is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_private(path, self.new_admin_token + "\n")

    def _login(self, user: str) -> Login:
        if self._store is None:
            assert self.settings.store_url is not None
            return Login(self.settings.store_url)
        return Login(self._store.url_for(user), user, self._store.password_of(user))

    def _settings_of_watch(self) -> CommonSettings:
        login = self._login(METRICS.name)
        if login.user is None:
            return load_settings(CommonSettings, store_url=login.store_url)
        user = {"metrics_store_user": login.user, "metrics_store_password": login.password}
        return load_settings(CommonSettings, **login.settings(), **user)

    async def _supervise_store(self, store: EmbeddedStore) -> None:
        """Restart the store whenever it has died, with the same data and at the same address."""
        while True:
            await asyncio.sleep(_STORE_CHECK_S)
            if store.pid is not None:
                continue
            _log.error("store_died", data=str(store.directory))
            try:
                await store.stop()
                await store.start()
            except (EmbeddedStoreError, RedisError, OSError) as error:
                _log.error("store_does_not_start", error=error)


def _stored_shards(path: Path, requested: int | None) -> int:
    """Return the number of shards of the data beside `path`, which the first start that succeeds decides."""
    if not path.exists():
        return requested or 1
    try:
        stored = int(json.loads(path.read_text(encoding="utf-8"))["node_task_manager_shards"])
    except (ValueError, KeyError, TypeError):
        raise StandaloneError(
            f"{path} does not say how many shards of node tasks the data beside it has: remove the file, and set "
            f"{variable_of('node_task_manager_shards')} to the number of shards that the data has"
        ) from None
    if requested is not None and requested != stored:
        raise StandaloneError(
            f"the data in {path.parent} has {stored} shard{'s' * (stored != 1)} of node tasks, not {requested}: "
            "leave the number out, or choose another directory"
        )
    return stored
