"""The messages between a worker and a process for nodes: msgpack preceded by its length, over a socket pair."""

import asyncio
import socket
import struct
from collections.abc import Callable

import msgspec

from tradewind.worker.outputs import Ending

_LENGTH = struct.Struct(">I")
LONGEST = 64 * 1024 * 1024
"""The most bytes of a frame; outputs, inputs and texts are far smaller."""


class Run(msgspec.Struct, tag=True, frozen=True):
    """To the child: run a node. This may hold secrets, so it must not be shown anywhere."""

    assignment: bytes
    """A NodeTaskAssignment."""
    module: str
    name: str
    """The name of the node in its module."""
    config_json: str
    """The config with its secrets filled in, if it refers to any; else empty, and the assignment's config counts."""
    secrets: dict[str, str]
    """The values that must not be revealed, by name."""
    traceparent: str = ""
    """The trace context of the worker's span."""

    def __repr__(self) -> str:
        return f"<run {self.module}:{self.name}>"


class Stop(msgspec.Struct, tag=True, frozen=True):
    """To the child: stop the node with this token."""

    token: str
    reason: str
    source: str


class Interrupt(msgspec.Struct, tag=True, frozen=True):
    """To the child: raise the stop that came before this, wherever the node's code is."""


class Begun(msgspec.Struct, tag=True, frozen=True):
    """From the child: the Run has arrived, and from here on the node may have had an effect."""


class Progress(msgspec.Struct, tag=True, frozen=True):
    """From the child: the node's progress."""

    token: str
    percent: int
    message: str
    step: str


class Log(msgspec.Struct, tag=True, frozen=True):
    """From the child: a line of the node's log."""

    token: str
    level: str
    message: str
    created_ns: int


class Completed(msgspec.Struct, tag=True, frozen=True):
    """From the child: the node has returned."""

    ending: Ending
    stop_seen: bool
    """Whether the node knew that it should stop."""


class Failed(msgspec.Struct, tag=True, frozen=True):
    """From the child: the node has raised."""

    failure: bytes
    """A NodeTaskFailure, free of secrets."""
    stop_seen: bool


class Stopped(msgspec.Struct, tag=True, frozen=True):
    """From the child: the node has stopped, as asked or by itself."""

    reason: str
    source: str


class Question(msgspec.Struct, tag=True, frozen=True):
    """From the child: the node asks the scheduler for variables."""

    number: int
    """Identifies the question."""
    method: str
    request: bytes


class Answer(msgspec.Struct, tag=True, frozen=True):
    """To the child: the answer to a question, or why there is none."""

    number: int
    response: bytes
    reason: str
    """Empty if there is an answer."""
    message: str


ToChild = Run | Stop | Interrupt | Answer
Reply = Completed | Failed | Stopped
FromChild = Begun | Progress | Log | Question | Reply

_encode = msgspec.msgpack.Encoder().encode
_decode_to_child: Callable[[bytes], ToChild] = msgspec.msgpack.Decoder(ToChild).decode
_decode_from_child: Callable[[bytes], FromChild] = msgspec.msgpack.Decoder(FromChild).decode


def pack(frame: ToChild | FromChild) -> bytes:
    """Return a frame as it is sent over the socket."""
    return pack_bytes(_encode(frame))


def pack_bytes(body: bytes) -> bytes:
    """Return `body` preceded by its length."""
    return _LENGTH.pack(len(body)) + body


async def read_from_child(reader: asyncio.StreamReader) -> FromChild:
    """Read the next frame from a child. Raises EOFError at the end, ValueError for an invalid frame."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    if length > LONGEST:
        raise ValueError(f"a frame of {length} bytes")
    return _decode_from_child(await reader.readexactly(length))


def read_to_child(connection: socket.socket) -> ToChild:
    """Wait for the next frame from the worker. Raises EOFError when the worker is gone."""
    (length,) = _LENGTH.unpack(_receive(connection, _LENGTH.size))
    return _decode_to_child(_receive(connection, length))


def _receive(connection: socket.socket, length: int) -> bytes:
    received = bytearray()
    while len(received) < length:
        part = connection.recv(length - len(received))
        if not part:
            raise EOFError
        received += part
    return bytes(received)
