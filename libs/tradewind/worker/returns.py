"""Whether a node returned what its function says it returns."""

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from tradewind.flow.node import DEFAULT_OUTPUT
from tradewind.worker.binding import explained
from tradewind.worker.errors import NodeFault
from tradewind.worker.models import ModelMisfit, reader_of
from tradewind.worker.type_parts import written
from tradewind.worker.waiting import Wait

ReturnCheck = Callable[[str, Any, bytes], None]
"""Is given the handle, what was returned, and its JSON; raises NodeFault INVALID_OUTPUT."""


def emitted_type(annotation: Any) -> Any:
    """Return what a node emits that says it returns this: what it waits for is never emitted."""
    kinds = get_args(annotation)
    if Wait in kinds and get_origin(annotation) in (Union, UnionType):
        return Union[tuple(kind for kind in kinds if kind is not Wait)]  # noqa: UP007
    return annotation


def return_check(annotation: Any) -> ReturnCheck | None:
    """Return what checks the values of a function that says it returns this; None when it says nothing to check.

    That is when it says nothing, `None`, `Any`, `Emit`, or something that cannot be read from JSON.
    """
    emitted = emitted_type(annotation)
    if emitted is Any or emitted is NoneType:
        return None
    try:
        reader = reader_of(emitted)
        if reader is not None:
            return _check_of_models(annotation, reader.check)
        msgspec.json.schema(emitted)
        return _check_of_json(annotation, emitted)
    except TypeError:
        return None


def _check_of_json(annotation: Any, emitted: Any) -> ReturnCheck:
    """The JSON is read as the next node will read it, so that tuples, numpy's values and the like are what they become.

    That takes a tenth of a microsecond for a number, and less than writing it took for a list of thousands.
    """
    decode = msgspec.json.Decoder(emitted).decode

    def check(handle: str, value: Any, text: bytes) -> None:
        try:
            decode(text)
        except msgspec.DecodeError as error:
            if emitted not in type(value).__mro__[1:]:
                raise _fault(explained(_output(handle), error), annotation) from None
        except Exception:
            # A class has a fault of its own when it is made anew: who gets the value may not make one.
            return

    return check


def _check_of_models(annotation: Any, look: Callable[[Any], None]) -> ReturnCheck:
    """What a model writes need not be what it reads, so the value itself is looked at."""

    def check(handle: str, value: Any, text: bytes) -> None:
        try:
            look(value)
        except ModelMisfit as error:
            raise _fault(error.below(_output(handle)), annotation) from None

    return check


def _output(handle: str) -> str:
    return "output" if handle == DEFAULT_OUTPUT else f"output {handle}"


def _fault(said: str, annotation: Any) -> NodeFault:
    return NodeFault("INVALID_OUTPUT", f"{said}; the function says it returns {written(annotation)}")
