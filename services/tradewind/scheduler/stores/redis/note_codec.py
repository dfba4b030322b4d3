"""Converts the notes of runs and the memory of flows to text in fields, and back."""

from collections.abc import Mapping

import msgspec

from tradewind.scheduler.domain.chain_state import ERROR, MEMORY, RESULT, Notes
from tradewind.scheduler.domain.memory import MAX_BYTES, Memory
from tradewind.scheduler.stores.redis.packed import pack, unpack

_LARGEST = 4 * MAX_BYTES
"""In bytes: room for the variables, their ids and older limits."""


class _Memory(msgspec.Struct, array_like=True):
    version: int
    changes: tuple[str, ...]
    variables: dict[str, msgspec.Raw]


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Memory).decode


def memory_text(memory: Memory) -> str:
    """Return variables as text to store."""
    variables = {name: msgspec.Raw(value.encode()) for name, value in memory.variables.items()}
    return pack(_encode(_Memory(memory.version, memory.changes, variables)).decode())


def memory_of(stored: str) -> Memory:
    """Return the variables in stored text. Raises ValueError for any other text."""
    found = _decode(unpack(stored, _LARGEST))
    return Memory({name: bytes(raw).decode() for name, raw in found.variables.items()}, found.version, found.changes)


def note_field(notes: Notes, name: str) -> str:
    """Return the text of the field `name`, MEMORY or RESULT."""
    if name == MEMORY:
        return memory_text(notes.memory)
    return pack(notes.result_json)


def notes_after(notes: Notes, text: Mapping[str, str]) -> Notes:
    """Return the notes that result from writing some fields."""
    memory, result = text.get(MEMORY), text.get(RESULT)
    if memory is None and result is None and ERROR not in text:
        return notes
    return Notes(
        text.get(ERROR, notes.error),
        notes.memory if memory is None else memory_of(memory),
        notes.result_json if result is None else unpack(result, _LARGEST),
    )
