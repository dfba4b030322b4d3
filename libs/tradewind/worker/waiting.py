"""`Wait`: what a node returns to be suspended, and what it reads when it continues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from tradewind.api.node_task_manager.v1 import node_task_pb2, work_pb2
from tradewind.flow.json_text import encode_json
from tradewind.flow.values import MAX_DURATION_S, Duration, seconds_in
from tradewind.worker.errors import NodeFault

ANSWER = "answer"
"""The signal that answers a form, unless another is named."""

_MAX_FORM_BYTES = 64 * 1024
_MAX_BYTES = _MAX_FORM_BYTES + 1024
"""The limit for the whole report; where it is stored, the exact limit of a form is checked."""


class Suspension(msgspec.Struct, frozen=True):
    """A wait to report to the node task manager: until `until_ms` since the epoch, or `delay_ms` after it is stored."""

    signal: str
    until_ms: int
    delay_ms: int
    form_json: str
    completes: str

    def to_message(self) -> work_pb2.WaitOrder:
        """Return it as a message."""
        order = work_pb2.WaitOrder(signal=self.signal, form_json=self.form_json, completes=self.completes)
        if self.until_ms:
            order.until.FromMilliseconds(self.until_ms)
        if self.delay_ms >= 0:
            order.delay.FromMilliseconds(self.delay_ms)
        return order


class Wait:
    """What a node returns to wait without a worker, until a signal or a time comes, whichever is first.

    `signal` is an identifier; `client.signal_node` or `tradewind task signal` sends it to the node task. `until` is a
    time with its zone, or a length of time: seconds, text such as "5m", or a timedelta. `form`, an object
    {title, description, fields}, is what a person is asked; the answer is the signal's payload.

    Then the node runs again from its beginning, as a further attempt that does not count against its retries, and
    `ctx.resumed` says what came. With `completes`, it does not run again but emits the payload, or null after a time,
    on its only output handle.

    Raises ValueError for nothing to wait for, a signal that is empty or not text, a time without its zone, and a time
    that never comes.
    """

    __slots__ = ("completes", "form", "signal", "until")

    def __init__(
        self,
        signal: str | None = None,
        *,
        until: datetime | Duration | None = None,
        form: Mapping[str, Any] | None = None,
        completes: bool = False,
    ) -> None:
        if signal is None and until is None and form is None:
            raise ValueError("Wait needs a signal, a time or a form: Wait('paid'), Wait(until=timedelta(hours=1))")
        if signal is not None and (not signal or not isinstance(signal, str)):
            raise ValueError(f"Wait({signal!r}): a signal is an identifier; a time is given as Wait(until=...)")
        if isinstance(until, datetime):
            if until.tzinfo is None:
                raise ValueError(f"Wait(until={until}) needs a time with its zone, such as datetime.now(UTC) + ...")
        elif until is not None:
            _check_length(until)
        self.signal = ANSWER if signal is None and form is not None else signal or ""
        self.until = until
        self.form = form
        self.completes = completes

    def __repr__(self) -> str:
        parts = [repr(self.signal)] if self.signal else []
        parts += [f"{name}={getattr(self, name)!r}" for name in ("until", "form") if getattr(self, name) is not None]
        return f"Wait({', '.join([*parts, *(['completes=True'] if self.completes else [])])})"

    def encode(self, handles: Sequence[str]) -> Suspension:
        """Return the wait to report for a node with these output handles. Raises NodeFault INVALID_OUTPUT."""
        if self.completes and len(handles) != 1:
            raise NodeFault(
                "INVALID_OUTPUT",
                f"Wait(completes=True) emits by the only output handle of a node, but this one has {len(handles)}",
            )
        form_json = ""
        if self.form is not None:
            try:
                form_json = encode_json(self.form, "the form").decode()
            except ValueError as error:
                raise NodeFault("INVALID_OUTPUT", f"the form of the Wait is not JSON: {error}") from error
        until_ms, delay_ms = 0, -1
        if isinstance(self.until, datetime):
            until_ms = max(1, round(self.until.timestamp() * 1000))
        elif self.until is not None:
            delay_ms = max(0, round(seconds_in(self.until) * 1000))
        suspension = Suspension(self.signal, until_ms, delay_ms, form_json, handles[0] if self.completes else "")
        try:
            # Raised here, an error fails only this node; raised during sending, it would break the whole stream.
            size = suspension.to_message().ByteSize()
            if size > _MAX_BYTES:
                raise ValueError(
                    f"its form and signal have {size} bytes, but a form may have at most {_MAX_FORM_BYTES}"
                )
        except ValueError as error:
            raise NodeFault("INVALID_OUTPUT", f"the node cannot wait for this: {error}") from error
        return suspension


@dataclass(frozen=True, slots=True)
class Resumed:
    """What ended the latest wait of a node: the signal `signal`, or the time if that is empty."""

    signal: str
    payload: Any
    """What came with the signal; None without one."""
    by: str
    """Who sent it."""
    at: datetime

    @property
    def timed_out(self) -> bool:
        """Whether the time came before a signal."""
        return not self.signal

    @classmethod
    def of(cls, message: node_task_pb2.Resumption) -> "Resumed":
        """Read it from an assignment."""
        payload = msgspec.json.decode(message.payload_json) if message.payload_json else None
        return cls(message.signal, payload, message.by, message.at.ToDatetime(tzinfo=UTC))


def _check_length(until: Duration) -> None:
    """Raise ValueError for an invalid length of time, or one that is too long for a message."""
    try:
        seconds = seconds_in(until)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Wait(until={until!r}): {error}") from None
    if not seconds <= MAX_DURATION_S:  # NaN is not, either
        raise ValueError("Wait(until=...) takes at most 10 000 years; to wait without end, leave it out")
