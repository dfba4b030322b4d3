"""Asks a server for its health: `python -m tradewind.server.probe [--liveness] [HOST:PORT]`.

For tools that cannot speak gRPC themselves, such as a container's health check. Exits 0 when the server is ready (or
alive), 1 with a reason when it is not, 2 for wrong usage.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub

from tradewind.server.channels import OpenChannel, channels_of, local_address_of, open_channel
from tradewind.server.health import LIVENESS, READINESS
from tradewind.server.settings import CommonSettings, SettingsError, load_settings
from tradewind.tls import TlsError

_TIMEOUT_S = 4.0


async def probe(address: str, name: str = READINESS, open_channel: OpenChannel = open_channel) -> str | None:
    """Return why the server at `address` is not well under `name` of its health service; None when it is."""
    channel = open_channel(address, traced=False)
    stub: Any = HealthStub(channel)
    try:
        answer = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=_TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        return f"{address} does not answer: {error.code().name} {error.details()}"
    finally:
        await channel.close()
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return None
    return f"{address}: {name} is {health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)}"


def main(arguments: Sequence[str]) -> int:
    """Return the exit code. The default address is TRADEWIND_HOST at TRADEWIND_PORT; TRADEWIND_TLS_* apply."""
    rest = [argument for argument in arguments if argument != "--liveness"]
    if len(rest) > 1 or any(argument.startswith("-") for argument in rest):
        print("usage: python -m tradewind.server.probe [--liveness] [HOST:PORT]", file=sys.stderr)
        return 2
    name = LIVENESS if "--liveness" in arguments else READINESS
    reason: str | None
    try:
        settings = load_settings(CommonSettings)
        address = rest[0] if rest else local_address_of(settings.host, settings.port)
        reason = asyncio.run(probe(address, name, channels_of(settings)))
    except (SettingsError, TlsError) as error:
        reason = str(error)
    if reason is not None:
        print(reason, file=sys.stderr)
    return 0 if reason is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
