"""A client that loses answers."""

from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from tradewind.client import Client
from tradewind.grpc_engine.wrapping import WrappedChannel
from tradewind.tls import Security

Meanwhile = Callable[[], Awaitable[object]]


class _LosingChannel(WrappedChannel):
    """Carries calls out, and reports a lost connection instead of the first answer of a method in `losses`."""

    def __init__(self, channel: grpc.aio.Channel, losses: dict[str, Meanwhile | None]) -> None:
        super().__init__(channel)
        self._losses = losses

    def _wrapped(self, make: Callable[..., Any], *args: Any, **options: Any) -> Any:
        method = make(*args, **options)
        name = args[0].rpartition("/")[2]

        async def call(*given: Any, **settings: Any) -> Any:
            answer = await method(*given, **settings)
            if name in self._losses:
                if meanwhile := self._losses.pop(name):
                    await meanwhile()
                nothing = grpc.aio.Metadata()
                raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, nothing, nothing, "Socket closed")
            return answer

        return call if make == self._channel.unary_unary else method


class LosingClient(Client):
    """Loses the answers that it is told to lose."""

    def __init__(self, address: str, *, token: str | None = None) -> None:
        super().__init__(address, token=token)
        self.losses: dict[str, Meanwhile | None] = {}
        """The methods whose next answer is lost, and what happens before they are called again."""

    def _open_channel(self, address: str, security: Security) -> grpc.aio.Channel:
        return _LosingChannel(super()._open_channel(address, security), self.losses)
