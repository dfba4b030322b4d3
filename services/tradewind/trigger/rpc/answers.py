"""The answers to claims in a receiver's message."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2
from tradewind.trigger.domain.claim import Ack, Extension, Nack, Token
from tradewind.trigger.rpc.faults import Faults

_ERROR_BYTES = 1024
_MAX_TOKEN = 256
"""No token is longer; what a receiver sends may have to wait in memory until it is reported as lost."""
LONGEST_LEASE_MS = 3_600_000
"""How long it takes at most until another receiver gets the triggers that a dead receiver held."""


class _Named(Protocol):
    token: str


Message = TypeVar("Message", bound=_Named)
Answer = TypeVar("Answer")


class Answers:
    """The answers to claims in a message; `lost` lists tokens that no claim can ever have had.

    Raises InvalidInput with every fault of the message.
    """

    def __init__(self, request: pb2.ReceiveDueRequest, default_lease_ms: int) -> None:
        self.lost: list[str] = []
        self._faults = Faults()
        self._default_lease_ms = default_lease_ms
        self.acks = list(self._read("acks", request.acks, self._ack))
        self.nacks = list(self._read("nacks", request.nacks, self._nack))
        self.extensions = list(self._read("extensions", request.extensions, self._extension))
        self._faults.refuse()

    def _read(
        self, name: str, messages: Iterable[Message], read: Callable[[str, Token, Message], Answer]
    ) -> Iterator[Answer]:
        for at, message in enumerate(messages):
            token = Token.parse(message.token)
            if len(message.token) > _MAX_TOKEN:
                fault = f"must have at most {_MAX_TOKEN} characters, has {len(message.token)}"
                self._faults.add(f"{name}[{at}].token", fault)
            elif token is None:
                self.lost.append(message.token)
            else:
                yield read(f"{name}[{at}]", token, message)

    def _ack(self, path: str, token: Token, message: pb2.DueTriggerAck) -> Ack:
        next_ms = None
        if message.HasField("next_fire_time"):
            next_ms = self._faults.time_ms(f"{path}.next_fire_time", message.next_fire_time)
        return Ack(token, next_ms, message.finished)

    def _nack(self, path: str, token: Token, message: pb2.DueTriggerNack) -> Nack:
        delay_ms = None
        if message.HasField("retry_after"):
            delay_ms = self._faults.span_ms(f"{path}.retry_after", message.retry_after, least=0)
        # A text that is too long is cut, not refused: the reason that a person reads is at its beginning.
        error = message.error.encode()[:_ERROR_BYTES].decode(errors="ignore")
        return Nack(token, delay_ms, error, message.postponed)

    def _extension(self, path: str, token: Token, message: pb2.DueTriggerExtension) -> Extension:
        lease_ms = self._default_lease_ms
        if message.HasField("lease"):
            lease_ms = self._faults.span_ms(f"{path}.lease", message.lease, least=1, most=LONGEST_LEASE_MS)
        return Extension(token, lease_ms)
