"""What a node emits: its return value, or several handles by name, as JSON text."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Never

from tradewind.flow.json_text import encode_json
from tradewind.flow.node import DEFAULT_OUTPUT
from tradewind.worker.errors import NodeFault
from tradewind.worker.texts import suggestion
from tradewind.worker.waiting import Suspension, Wait

MAX_OUTPUT_BYTES = 1024 * 1024

Outputs = list[tuple[str, str]]
"""The handle and JSON text of each emitted output."""
Ending = Outputs | Suspension
"""How a node returned: with outputs, or with a wait."""


class Emit:
    """What a node with several outputs returns: `Emit(buy=10)` emits on the handle `buy` and on no other.

    An edge from a handle that is not emitted is dead, so nodes that depend on it are skipped.
    """

    __slots__ = ("values",)

    def __init__(self, /, *unnamed: Never, **values: Any) -> None:
        if unnamed:
            raise TypeError("Emit takes outputs by handle: Emit(buy=10), or Emit(**outputs) for a dict of outputs")
        self.values = values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Emit) and self.values == other.values

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Emit({', '.join(f'{handle}={value!r}' for handle, value in self.values.items())})"


def encode_outputs(
    result: Any, handles: Sequence[str], check: Callable[[str, Any, bytes], None] | None = None
) -> Ending:
    """Return `result` as outputs on the declared `handles`, or a Wait as what to wait for.

    With one handle, the returned value is emitted on it, even `None`; with several, an Emit must be returned; with
    none, `None`. Raises NodeFault INVALID_OUTPUT for anything else, for unknown handles and for what is not JSON (NaN
    and infinities are not), and OUTPUT_TOO_LARGE above 1 MiB together. A value that is returned without an Emit is also
    passed to `check`, with its handle and JSON, which may raise.
    """
    if type(result) is not Emit:
        if isinstance(result, Wait):
            return result.encode(handles)
        if len(handles) != 1:
            if not handles and result is None:
                return []
            raise _not_an_emit(result, handles)
        handle = handles[0]
        text = _encode_value(handle, result)
        if len(text) > MAX_OUTPUT_BYTES:
            raise _too_large({handle: len(text)})
        if check is not None:
            check(handle, result, text)
        return [(handle, text.decode())]
    texts = {}
    for handle, value in result.values.items():
        if handle not in handles:
            raise NodeFault("INVALID_OUTPUT", f'the node has no output handle "{handle}"{suggestion(handle, handles)}')
        texts[handle] = _encode_value(handle, value)
    sizes = {handle: len(text) for handle, text in texts.items()}
    require_size(sizes)
    return [(handle, text.decode()) for handle, text in texts.items()]


def require_size(sizes: dict[str, int]) -> None:
    """Raise NodeFault OUTPUT_TOO_LARGE when outputs of these sizes, in bytes, exceed 1 MiB together."""
    if sum(sizes.values()) > MAX_OUTPUT_BYTES:
        raise _too_large(sizes)


def _encode_value(handle: str, value: Any) -> bytes:
    try:
        return encode_json(value, handle)
    except ValueError as error:
        what = "the output" if handle == DEFAULT_OUTPUT else f'output "{handle}"'
        raise NodeFault("INVALID_OUTPUT", f"{what} is not JSON: {_hint(value) or error}") from error


def _hint(value: Any) -> str:
    """Return what to do with a value that still has to be awaited; empty for any other value."""
    if inspect.isasyncgen(value):
        return "it is an async generator: emit a list of what it yields"
    if not inspect.isawaitable(value):
        return ""
    if inspect.iscoroutine(value):
        value.close()
    # Only where an async node runs is there a loop.
    in_async_node = asyncio._get_running_loop() is not None
    return "it is an awaitable: await it" + ("" if in_async_node else ", and declare the node with async def")


def _not_an_emit(result: Any, handles: Sequence[str]) -> NodeFault:
    hint = _hint(result)
    kind = type(result).__qualname__ + (f"; {hint}" if hint else "")
    if not handles:
        return NodeFault("INVALID_OUTPUT", f"the node declares no outputs but returned a value of type {kind}")
    example = ", ".join(f"{handle}=..." for handle in handles)
    return NodeFault(
        "INVALID_OUTPUT",
        f"a node with several outputs returns Emit({example}) with the handles that it emits, not a value of type "
        f"{kind}",
    )


def _too_large(sizes: dict[str, int]) -> NodeFault:
    parts = ", ".join(f"{handle} {size} bytes" for handle, size in sorted(sizes.items(), key=lambda each: -each[1]))
    return NodeFault(
        "OUTPUT_TOO_LARGE",
        f"the outputs have {sum(sizes.values())} bytes of JSON together ({parts}), at most {MAX_OUTPUT_BYTES} are "
        "allowed: store large values elsewhere and emit a reference",
    )
