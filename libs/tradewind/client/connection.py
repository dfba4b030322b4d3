"""The connection behind a client: a channel per address, and the calls that go over it."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from tradewind.api.access.v1.access_service_pb2_grpc import AccessServiceStub
from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceStub
from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from tradewind.api.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceStub
from tradewind.api.trigger.v1.trigger_service_pb2_grpc import TriggerServiceStub
from tradewind.client.addresses import DEFAULT_ADDRESS, Addresses
from tradewind.client.calls import Calls
from tradewind.client.errors import Unavailable
from tradewind.client.reports import ends_reported
from tradewind.client.run_stream import RunStream
from tradewind.codec import Codec
from tradewind.codec.channel import DecodingChannel
from tradewind.grpc_engine.bearer import with_token
from tradewind.tls import Security

if TYPE_CHECKING:
    from tradewind.api.access.v1.access_service_pb2_grpc import AccessServiceAsyncStub
    from tradewind.api.node_task_manager.v1.node_task_manager_service_pb2_grpc import NodeTaskManagerServiceAsyncStub
    from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceAsyncStub
    from tradewind.api.scheduler.v1.scheduler_service_pb2_grpc import SchedulerServiceAsyncStub
    from tradewind.api.trigger.v1.trigger_service_pb2_grpc import TriggerServiceAsyncStub

OpenChannel = Callable[[str, Security], grpc.aio.Channel]
Stub = TypeVar("Stub")

_NOT_PICKLED = (
    "clients and handles hold open connections, so they cannot be pickled or copied: pass the client's address, or the "
    "ids of the flow, cycle, task or batch, and make a client where they arrive"
)


class Connection(Calls):
    """Makes calls over channels, each opened when it is first needed; usable in one event loop only."""

    def __init__(
        self,
        addresses: Addresses,
        *,
        timeout: float,
        patience: float,
        credentials: Security,
        codec: Codec | None,
        token: str | None,
        open_channel: OpenChannel,
    ) -> None:
        super().__init__(addresses, timeout, patience, codec)
        self._token = token
        self._credentials = credentials
        self._open_channel = open_channel
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stubs: dict[object, Any] = {}
        self.runs = RunStream(lambda: self.scheduler.StreamRuns, addresses.scheduler)

    def __reduce__(self) -> NoReturn:
        """Raise TypeError: an object with open connections cannot be pickled or copied."""
        raise TypeError(_NOT_PICKLED)

    @property
    def may_have_access_service(self) -> bool:
        """Whether there may be an access service: calls carry a token, or its address is known."""
        addresses = self.addresses
        if not addresses.access:
            return False
        return self._token is not None or addresses.access == addresses.scheduler or addresses.access != DEFAULT_ADDRESS

    @property
    def scheduler(self) -> "SchedulerServiceAsyncStub":
        """The scheduler's methods."""
        return self._stub(self.addresses.scheduler, SchedulerServiceStub)

    @property
    def registry(self) -> "RegistryServiceAsyncStub":
        """The registry's methods."""
        return self._stub(self.addresses.registry, RegistryServiceStub)

    @property
    def node_task_manager(self) -> "NodeTaskManagerServiceAsyncStub":
        """The node task manager's methods."""
        return self._stub(self.addresses.node_task_manager, NodeTaskManagerServiceStub)

    @property
    def trigger(self) -> "TriggerServiceAsyncStub":
        """The trigger service's methods."""
        return self._stub(self.addresses.trigger, TriggerServiceStub)

    @property
    def access(self) -> "AccessServiceAsyncStub":
        """The access service's methods."""
        return self._stub(self.addresses.access, AccessServiceStub)

    async def wait_ready(self, timeout: float) -> None:
        """Return once every server that runs flows reports that it is ready.

        Raises Unavailable when one does not within `timeout` s.
        """
        deadline = time.monotonic() + timeout
        addresses = {self.addresses.scheduler, self.addresses.registry, self.addresses.node_task_manager}
        for address in sorted(addresses):
            stub: Any = HealthStub(self._channel(address))
            request = health_pb2.HealthCheckRequest(service="readiness")
            while True:
                self.own_loop()
                remaining = deadline - time.monotonic()
                try:
                    with self.until_closed():
                        answer = await stub.Check(request, timeout=max(0.1, remaining))
                    if answer.status == health_pb2.HealthCheckResponse.SERVING:
                        break
                    cause = "it reports that it is not ready"
                except grpc.aio.AioRpcError as error:
                    cause = error.details() or error.code().name
                if remaining <= 0:
                    raise Unavailable(f"{address} is not ready after {timeout:g} s: {cause}")
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        """Close every channel for good; calls under way fail."""
        self.closed = True
        await self.runs.close()
        channels = list(self._channels.values())
        # Forgotten before they are closed: a process forked while they are remembered could open no others.
        self._channels.clear()
        self._stubs.clear()
        for channel in channels:
            await channel.close()
        await ends_reported()

    def _stub(self, address: str, make: Callable[[grpc.aio.Channel], Stub]) -> Stub:
        if make not in self._stubs:
            self._stubs[make] = make(self._channel(address))
        stub: Stub = self._stubs[make]
        return stub

    def _channel(self, address: str) -> grpc.aio.Channel:
        # Checked first: gRPC crashes when a closed channel is asked for a method.
        self.own_loop()
        if address not in self._channels:
            channel = with_token(self._open_channel(address, self._credentials), self._token)
            self._channels[address] = channel if self._codec is None else DecodingChannel(channel, self._codec)
        return self._channels[address]
