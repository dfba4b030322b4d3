"""The registry as a process of its own: `python -m tradewind.registry`."""

import asyncio
import os
import signal
import sys
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.ports import free_port
from tests.rpc.registry.conftest import a_worker, register
from tests.servers import RedisServer
from tests.waiting import until
from tradewind.api.registry.v1.registry_service_pb2_grpc import RegistryServiceStub
from tradewind.server.channels import open_channel


async def test_registry_process_serves_and_exits_with_0_on_sigterm(embedded: RedisServer) -> None:
    await embedded.flush()
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tradewind.registry",
        env={**os.environ, "TRADEWIND_PORT": str(port), "TRADEWIND_STORE_URL": embedded.url("registry")},
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with open_channel(f"127.0.0.1:{port}") as channel:
            health: Any = health_pb2_grpc.HealthStub(channel)

            async def ready() -> bool:
                try:
                    check = health_pb2.HealthCheckRequest(service="readiness")
                    answer = await health.Check(check, timeout=1)
                except grpc.aio.AioRpcError:
                    return False
                return bool(answer.status == health_pb2.HealthCheckResponse.SERVING)

            await until(ready, "the registry is ready")
            assert (await register(RegistryServiceStub(channel), a_worker())).worker.worker_id == "w"
        process.send_signal(signal.SIGTERM)
        _, log = await asyncio.wait_for(process.communicate(), 30)
        assert process.returncode == 0, log.decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
