"""A stack that does as the test tells it: the services that a client calls, over a real channel."""

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1._async import HealthServicer

from tests.unit.client.fake_peers import FakeAccess, FakeNodeTaskManager, FakeRegistry, FakeTrigger
from tests.unit.client.fake_scheduler import FakeScheduler
from tradewind.api.access.v1 import access_service_pb2_grpc
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2_grpc
from tradewind.api.registry.v1 import registry_service_pb2_grpc
from tradewind.api.scheduler.v1 import scheduler_service_pb2_grpc
from tradewind.api.trigger.v1 import trigger_service_pb2_grpc


class FakeStack:
    """All services on one server at a free port of this machine."""

    def __init__(self) -> None:
        # They serve only the calls that tests of the client make.
        self.scheduler = FakeScheduler()  # type: ignore[abstract]
        self.registry = FakeRegistry()  # type: ignore[abstract]
        self.node_task_manager = FakeNodeTaskManager()  # type: ignore[abstract]
        self.access = FakeAccess()  # type: ignore[abstract]
        self.trigger = FakeTrigger()  # type: ignore[abstract]
        self.address = ""
        self._server: grpc.aio.Server | None = None

    async def start(self, port: int = 0) -> None:
        """Serve."""
        server = self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
        scheduler_service_pb2_grpc.add_SchedulerServiceServicer_to_server(self.scheduler, server)
        registry_service_pb2_grpc.add_RegistryServiceServicer_to_server(self.registry, server)
        node_task_manager_service_pb2_grpc.add_NodeTaskManagerServiceServicer_to_server(self.node_task_manager, server)
        access_service_pb2_grpc.add_AccessServiceServicer_to_server(self.access, server)
        trigger_service_pb2_grpc.add_TriggerServiceServicer_to_server(self.trigger, server)
        health = HealthServicer()
        await health.set("readiness", health_pb2.HealthCheckResponse.SERVING)
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        self.address = f"127.0.0.1:{server.add_insecure_port(f'127.0.0.1:{port}')}"
        await server.start()

    async def stop(self) -> None:
        """Stop at once."""
        if self._server is not None:
            await self._server.stop(0)
            self._server = None
