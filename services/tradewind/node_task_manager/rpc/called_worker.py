"""Calls a worker that serves WorkerService."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol
from urllib.parse import urlsplit

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import RetryInfo

from tradewind.api.worker.v1 import worker_service_pb2 as pb2
from tradewind.api.worker.v1.worker_service_pb2_grpc import WorkerServiceStub
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.ports.work import Termination
from tradewind.node_task_manager.ports.workers import Answer, Ready
from tradewind.node_task_manager.rpc import work_mapping as mapping
from tradewind.node_task_manager.rpc.times import timestamp
from tradewind.server.channels import open_channel
from tradewind.server.clock import Clock
from tradewind.server.statuses import status_in
from tradewind.tls import SYSTEM, Security, TlsFiles

CONNECT_S = 2.0
EXECUTE_S = 5.0
_TERMINATE_S = 2.0
_BREAK_S = 0.1
"""How soon a broken connection shows after a call has failed."""
_READY = grpc.ChannelConnectivity.READY


class OpenWorkerChannel(Protocol):
    """Opens a channel as `open_channel` does."""

    def __call__(self, address: str, *, traced: bool, security: Security) -> grpc.aio.Channel: ...


class CalledWorkerChannel:
    """Implements WorkerCalls. Addresses that begin with `https` or `grpcs` ask for TLS, all others for plain text."""

    def __init__(
        self,
        api_url: str,
        limits: Limits,
        clock: Clock,
        tls: TlsFiles | None = None,
        open_channel: OpenWorkerChannel = open_channel,
    ) -> None:
        """`tls` are the certificates to show and to trust; without it, the CAs of this machine are trusted."""
        scheme, target = _target(api_url)
        # A worker has a name of its own, whatever the servers' name is.
        security = replace(tls or TlsFiles(ca=SYSTEM), server_name=None) if scheme in ("https", "grpcs") else None
        self._channel = open_channel(target, traced=False, security=security)
        self._stub = WorkerServiceStub(self._channel)
        self._stop_grace_ms = limits.stop_grace_ms
        self._clock = clock
        self._lease, self._renew_interval = Duration(), Duration()
        self._lease.FromMilliseconds(limits.lease_ms)
        self._renew_interval.FromMilliseconds(limits.lease_ms // 3)

    async def execute(self, ready: Sequence[Ready]) -> Answer:
        # A worker certainly did not get the node tasks only if it is known beforehand that it cannot be reached.
        if not await self.connected(CONNECT_S):
            return Answer(refused=f"it could not be reached within {CONNECT_S:.0f} s")
        now_ms = self._clock.now_ms()
        request = pb2.ExecuteRequest(
            assignments=[mapping.assignment(each, now_ms) for each in ready],
            lease=self._lease,
            renew_interval=self._renew_interval,
            sent_at=timestamp(now_ms),
        )
        try:
            response = await self._stub.Execute(request, timeout=EXECUTE_S)
        except grpc.aio.AioRpcError as error:
            return await self._refusal(error)
        nonces = {each.nonce for each in ready}
        return Answer(frozenset(token.rpartition("~")[2] for token in response.accepted_tokens) & nonces)

    async def _refusal(self, error: grpc.aio.AioRpcError) -> Answer:
        code = error.code()
        if code is grpc.StatusCode.UNAVAILABLE and await self._lost():
            return Answer(silent=True, refused="the connection broke")
        return Answer(
            refused=f"{code.name}: {(error.details() or '')[:200]}",
            retry_after_s=_retry_after_s(error),
            full=code is grpc.StatusCode.RESOURCE_EXHAUSTED,
        )

    async def _lost(self) -> bool:
        """Say whether the connection is lost; a worker that answers UNAVAILABLE itself keeps it."""
        if self._channel.get_state() is _READY:
            try:
                async with asyncio.timeout(_BREAK_S):
                    await self._channel.wait_for_state_change(_READY)
            except TimeoutError:
                return False
        return True

    async def broken(self) -> None:
        while (state := self._channel.get_state()) is not _READY:
            await self._channel.wait_for_state_change(state)
        await self._channel.wait_for_state_change(_READY)

    async def connected(self, within_s: float) -> bool:
        try:
            async with asyncio.timeout(within_s):
                await self._channel.channel_ready()
        except (TimeoutError, grpc.aio.UsageError):
            return False
        return True

    async def terminate(self, shard: int, terminations: Sequence[Termination]) -> bool:
        messages = [mapping.termination(shard, each, self._stop_grace_ms) for each in terminations]
        try:
            await self._stub.Terminate(pb2.TerminateRequest(terminations=messages), timeout=_TERMINATE_S)
        except (grpc.aio.AioRpcError, grpc.aio.UsageError):
            return False
        return True

    async def close(self) -> None:
        await self._channel.close()


def _target(api_url: str) -> tuple[str, str]:
    """Return the scheme, "" for none, and the gRPC target of an address that the registry has accepted."""
    if "://" not in api_url or api_url.startswith("dns://"):
        return "", api_url
    parts = urlsplit(api_url)
    return parts.scheme, parts.netloc


def _retry_after_s(error: grpc.aio.AioRpcError) -> float:
    """Return for how many seconds a worker asks to be left alone, 0 when it does not say so in readable form."""
    info = RetryInfo()
    with suppress(DecodeError):
        for detail in status_in(error).details:
            if detail.Unpack(info):
                return info.retry_delay.seconds + info.retry_delay.nanos / 1e9
    return 0.0
