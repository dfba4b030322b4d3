"""Checks that a node returned what its function is annotated to return."""

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

import msgspec

from tradewind.flow.node import DEFAULT_OUTPUT
from tradewind.worker.binding import plain_message
from tradewind.worker.errors import NodeFault
from tradewind.worker.models import ModelMisfit, has_model, reader_of
from tradewind.worker.type_parts import type_name
from tradewind.worker.waiting import Wait

ReturnCheck = Callable[[str, Any, bytes], None]
"""Takes the handle, the returned value, and its JSON; raises NodeFault INVALID_OUTPUT."""


def emitted_type(annotation: Any) -> Any:
    """Return the type that a node with this return annotation emits: a Wait is never emitted."""
    kinds = get_args(annotation)
    if Wait in kinds and get_origin(annotation) in (Union, UnionType):
        return Union[tuple(kind for kind in kinds if kind is not Wait)]  # noqa: UP007
    return annotation


def return_check(annotation: Any) -> ReturnCheck | None:
    """Return the check for values of a function with this return annotation; None if there is nothing to check.

    That is so for no annotation, `None`, `Any`, `Emit`, and types that cannot be read from JSON, such as an alias that
    contains itself.
    """
    emitted = emitted_type(annotation)
    if emitted is Any or emitted is NoneType:
        return None
    try:
        reader = reader_of(emitted)
        if reader is not None and has_model(emitted):
            return _check_of_models(annotation, reader.check)
        msgspec.json.schema(emitted)
        return _check_of_json(annotation, emitted, (reader or msgspec.json.Decoder(emitted)).decode)
    except (TypeError, RecursionError):
        return None


def _check_of_json(annotation: Any, emitted: Any, decode: Callable[[bytes], Any]) -> ReturnCheck:
    """Return a check that reads the JSON as the next node will, so that it sees what tuples, numpy values etc. become.

    It takes a tenth of a microsecond for a number, and for a list of thousands less time than writing the JSON took.
    """

    def check(handle: str, value: Any, text: bytes) -> None:
        try:
            decode(text)
        except msgspec.DecodeError as error:
            if emitted not in type(value).__mro__[1:]:
                raise _fault(plain_message(_output(handle), error), annotation) from None
        except Exception:
            # The class itself failed when an instance was made; the receiver of the value may never make one.
            return

    return check


def _check_of_models(annotation: Any, check_value: Callable[[Any], None]) -> ReturnCheck:
    """Return a check of the value itself, because a model may write something other than what it reads."""

    def check(handle: str, value: Any, text: bytes) -> None:
        try:
            check_value(value)
        except ModelMisfit as error:
            raise _fault(error.describe(_output(handle)), annotation) from None

    return check


def _output(handle: str) -> str:
    return "output" if handle == DEFAULT_OUTPUT else f"output {handle}"


def _fault(problem: str, annotation: Any) -> NodeFault:
    return NodeFault("INVALID_OUTPUT", f"{problem}; the function says it returns {type_name(annotation)}")
