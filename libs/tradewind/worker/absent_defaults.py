"""Defaults of dataclasses that msgspec read: it leaves them in the class, and would not write them again."""

import functools
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

import msgspec

from tradewind.worker.type_parts import parts_of


def with_defaults(annotation: Any, read: Callable[..., Any]) -> Callable[..., Any]:
    """Return what reads values of the type as `read` does, with every field of their dataclasses set."""
    if not any(_kept_in_class(part) for part in parts_of(annotation) if isinstance(part, type)):
        return read
    return lambda given: _filled(read(given))


def _filled(value: Any) -> Any:
    pending = [value]
    while pending:
        item = pending.pop()
        kind: Any = type(item)
        if kind in (list, tuple, set, frozenset):
            pending += item
        elif kind is dict:
            pending += item.values()
        elif kind not in (str, int, float, bool):
            for name, default in _kept_in_class(kind):
                item.__dict__.setdefault(name, default)
            pending += [getattr(item, name, None) for name in _fields_of(kind)]
    return value


@functools.lru_cache(1024)
def _kept_in_class(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the defaults that a dataclass keeps in the class: those of fields without a slot."""
    if not is_dataclass(kind) or hasattr(kind, "__slots__"):
        return ()
    return tuple((each.name, each.default) for each in fields(kind) if each.init and each.default is not MISSING)


@functools.lru_cache(1024)
def _fields_of(kind: type) -> tuple[str, ...]:
    if issubclass(kind, msgspec.Struct):
        return kind.__struct_fields__
    return tuple(each.name for each in fields(kind)) if is_dataclass(kind) else ()
