"""The parts of a type, and how people write it."""

import re
import typing
from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

_ALIAS = getattr(typing, "TypeAliasType", ())
_FIELDS = ("__dataclass_fields__", "__struct_fields__", "__total__", "_fields", "model_fields")
"""Attributes by which dataclasses, msgspec's structs, TypedDicts, NamedTuples and pydantic's models are recognized."""
_MODULE = re.compile(r"\b(?:[A-Za-z_]\w*\.|<locals>\.)+(?=[A-Za-z_])")


def parts_of(annotation: Any) -> Iterator[Any]:
    """Yield the type and all types within it, including those of the fields of its classes, outermost first."""
    pending, seen = [annotation], set[int]()
    while pending:
        part = pending.pop(0)
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        origin = get_origin(part)
        if isinstance(part, _ALIAS):
            pending.append(part.__value__)
        elif origin is Annotated:
            pending.append(get_args(part)[0])
        elif origin in (Union, UnionType):
            pending += get_args(part)
        elif origin is not Literal:
            pending += _fields(part) if origin is None else [origin, *get_args(part)]


def meant_by(annotation: Any) -> Any:
    """Return the type that an alias made by a `type` statement stands for; any other type unchanged."""
    alias = get_origin(annotation) or annotation
    if not isinstance(alias, _ALIAS):
        return annotation
    arguments = get_args(annotation)
    return meant_by(alias.__value__[arguments] if arguments else alias.__value__)


def type_name(annotation: Any) -> str:
    """Return a type as it is written in a signature: `list[Order]`."""
    if isinstance(annotation, type):
        return annotation.__qualname__.rpartition("<locals>.")[2]
    return _MODULE.sub("", str(annotation))


def _fields(part: Any) -> list[Any]:
    if not isinstance(part, type) or not any(hasattr(part, name) for name in _FIELDS):
        return []
    try:
        return list(typing.get_type_hints(part, include_extras=True).values())
    except Exception:
        # A name is not defined: making a reader of the type reports it.
        return []
