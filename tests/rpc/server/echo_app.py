"""A process that serves the echo service, like each service's `__main__`; the tests of `run` run it."""

import asyncio
import sys

from pydantic import Field

from tests.rpc.server.echo_service import EchoService
from tradewind.server import process
from tradewind.server.process import run
from tradewind.server.settings import CommonSettings


class EchoSettings(CommonSettings):
    """Settings of the echo process."""

    port: int = Field(0, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    fault: str | None = Field(None, description="How the service misbehaves: start, hang, build, undying or stubborn.")


class FaultyService(EchoService):
    """A service that cannot reach its store."""

    async def start(self) -> None:
        raise ConnectionError("the store does not answer: connection refused")


class HangingService(EchoService):
    """A service that waits for its store for ever, and says so first."""

    async def start(self) -> None:
        print("starting", flush=True)
        await asyncio.Event().wait()


class CancellationIgnoringService(EchoService):
    """A service that leaves behind a task that ignores cancellation."""

    async def start(self) -> None:
        process._END_S = 0.5
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                continue


def build(settings: EchoSettings) -> EchoService:
    """Return the service that the settings ask for."""
    if settings.fault == "build":
        raise ValueError("store URL: a host is missing")
    if settings.fault == "start":
        return FaultyService()
    if settings.fault == "hang":
        return HangingService()
    if settings.fault == "undying":
        return CancellationIgnoringService()
    return EchoService(stubborn=settings.fault == "stubborn")


if __name__ == "__main__":
    run(build, EchoSettings, "echo", sys.argv[1:])
