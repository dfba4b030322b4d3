"""Small conversions between messages and Python's own values."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar, overload

from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tradewind.client.json_text import encode
from tradewind.client.messages import describe_value
from tradewind.flow.values import MAX_DURATION_S, seconds_in

Member = TypeVar("Member", bound=str)
Number = TypeVar("Number", bound=int, covariant=True)
Item = TypeVar("Item")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Seconds = float | timedelta | str
"""A length of time: a number of seconds, text such as "500ms", "5s" or "5m", or a timedelta."""


class _WireEnum(Protocol[Number]):
    """An enum of the contract, as generated."""

    def items(self) -> Sequence[tuple[str, Number]]: ...

    def Name(self, number: Any) -> str: ...  # noqa: N802


class Members(dict[int, Member]):
    """The member of `kind` for each number of `enum`: `running` for CYCLE_STATUS_RUNNING.

    Other numbers, as of a newer server or for a field that is not set, are its member `unknown`.
    """

    def __init__(self, enum: _WireEnum[Number], kind: type[Member]) -> None:
        prefix = _prefix(enum)
        super().__init__((number, kind(name.removeprefix(prefix).lower())) for name, number in enum.items() if number)
        self._unknown = kind("unknown")

    def __missing__(self, number: int) -> Member:
        return self._unknown


def number_of(enum: _WireEnum[Number], word: str) -> Number:
    """Return the number in `enum` for a word: CYCLE_STATUS_RUNNING for `running`.

    Raises ValueError that names the known words.
    """
    known = {name.removeprefix(_prefix(enum)).lower(): number for name, number in enum.items() if number}
    if word not in known:
        raise ValueError(f'"{word}" is not one of {", ".join(known)}')
    return known[word]


def numbers_of(enum: _WireEnum[Number], given: Iterable[str]) -> list[Number]:
    """Return the numbers in `enum` for several words, or one. Raises ValueError that names the known words."""
    return [number_of(enum, word) for word in as_list(given)]


def as_list(given: Iterable[Item], name: str = "this") -> list[Item]:
    """Return the given items as a list; a single string is one item, not its letters.

    Raises TypeError, which says that `name` is wrong, for what has no items.
    """
    if isinstance(given, str):
        return [given]  # type: ignore[list-item]
    if not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a list; {describe_value(given)}")
    return list(given)


def _prefix(enum: _WireEnum[Number]) -> str:
    return enum.Name(0).removesuffix("UNSPECIFIED")


def seconds_of(length: Seconds) -> float:
    """Return a length of time in seconds, which may be infinite.

    Raises ValueError for invalid text or a negative length, or TypeError.
    """
    seconds = seconds_in(length)
    if not seconds >= 0:  # NaN is not, either
        raise ValueError(f"a length of time must not be negative, is {seconds} s")
    return seconds


def duration(seconds: float) -> Duration | None:
    """Return a Duration of at least 1 ms, or None for 0. Raises ValueError for more than 10 000 years."""
    return span(max(seconds, 0.001)) if seconds else None


def span(seconds: float) -> Duration:
    """Return a Duration of whole milliseconds, which may be 0. Raises ValueError for more than 10 000 years."""
    whole, rest = divmod(round(bounded(seconds) * 1000), 1000)
    return Duration(seconds=whole, nanos=rest * 1_000_000)


def bounded(seconds: float) -> float:
    """Return a length of time that a message can hold. Raises ValueError for more than 10 000 years."""
    if not seconds <= MAX_DURATION_S:
        raise ValueError(f"a length of time must be at most 10 000 years, is {seconds:g} s")
    return seconds


@overload
def timestamp(moment: datetime) -> Timestamp: ...


@overload
def timestamp(moment: datetime | None) -> Timestamp | None: ...


def timestamp(moment: datetime | None) -> Timestamp | None:
    """Return a Timestamp, None for None.

    Raises ValueError for a moment without a time zone, which would be ambiguous, or outside of the years 1 to 9999 in
    UTC; TypeError for anything but a datetime.
    """
    if moment is None:
        return None
    if not isinstance(moment, datetime):
        raise TypeError(f"a time must be a datetime with a time zone; {describe_value(moment)}")
    if moment.tzinfo is None:
        raise ValueError(f"{moment} has no time zone: use datetime.now(UTC), or .astimezone() for local time")
    message = Timestamp()
    try:
        message.FromDatetime(moment)
    except OverflowError:
        raise ValueError(f"{moment} is outside of the years 1 to 9999 in UTC") from None
    return message


def moment(message: Message, field: str) -> datetime | None:
    """Return the UTC time in a Timestamp field of `message`; None if it is not set."""
    if not message.HasField(field):
        return None
    value = getattr(message, field)
    assert isinstance(value, Timestamp)
    # This costs a tenth of ToDatetime.
    return _EPOCH + timedelta(0, value.seconds, value.nanos // 1000)


def object_json(given: Mapping[str, Any] | str | None, name: str) -> str:
    """Return a JSON object, which callers may give as its text, as JSON text; "" for none.

    Raises ValueError for values that JSON cannot hold and for text that is not a JSON object, TypeError for anything
    that is not a mapping; both say that `name` is wrong.
    """
    if not given:
        return ""
    if isinstance(given, str):
        if not given.lstrip().startswith("{"):
            raise ValueError(
                f'{name} must be a dict or a JSON object, as in {{"month": "2001-04"}}; got {given[:40]!r}'
            )
        return given
    if not isinstance(given, Mapping):
        raise TypeError(f'{name} must map names to values, as in {{"month": "2001-04"}}; {describe_value(given)}')
    return encode(dict(given), name)
