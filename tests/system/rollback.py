"""What a store loses when its host dies: the writes since it last wrote to its disk."""

import copyreg
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any

# `deepcopy` cannot copy the mappings in chain states.
copyreg.pickle(MappingProxyType, lambda proxy: (MappingProxyType, (dict(proxy),)))

_LISTENERS = frozenset({"listeners", "wake_listeners", "_subscribers"})
"""Whoever listens to a store is not on record. Nor are numbers given out by iterators: in Redis these are random."""


def snapshot(stores: Sequence[object]) -> Callable[[], None]:
    """Return a function that resets stores in memory to this moment, all of them at once."""
    known = {id(each): each for store in stores for each in (store, *_kept(store))}
    saved = deepcopy([_records(store) for store in stores], known)

    def restore() -> None:
        for store, records in zip(stores, saved, strict=True):
            for name, value in records.items():
                now = getattr(store, name)
                if isinstance(now, dict):
                    # Others may hold the same dictionary.
                    now.clear()
                    now.update(value)
                else:
                    setattr(store, name, value)

    return restore


def _is_record(name: str, value: object) -> bool:
    return name not in _LISTENERS and not callable(value) and not isinstance(value, Iterator)


def _records(store: object) -> dict[str, Any]:
    return {name: value for name, value in _fields(store) if _is_record(name, value)}


def _kept(store: object) -> list[object]:
    return [value for name, value in _fields(store) if not _is_record(name, value)]


def _fields(store: object) -> Iterator[tuple[str, Any]]:
    for name in getattr(store, "__slots__", None) or vars(store):
        yield name, getattr(store, name)
