"""Secrets in a node's config: `{"$secret": "name"}` stands for a value that only the worker knows."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.paths import join, join_all, shown
from tradewind.server.hidden_values import SECRET_KEY
from tradewind.server.identifiers import check_identifier
from tradewind.server.quoting import listed

Keys = tuple[str | int, ...]
"""The place of a value in a config: `("window",)`, `("symbols", 0)`."""


def check_secrets(config: dict[str, Any], path: str, faults: FaultList) -> frozenset[Keys]:
    """Check every secret reference in the config at `path` and return their places in the config."""
    if SECRET_KEY in config:
        faults.add(path, "a secret can stand for a value in the config, not for the whole of it")
        return frozenset()
    places = []
    for keys, reference in _references(config, ()):
        places.append(keys)
        _check_reference(reference, join_all(path, keys), faults)
    return frozenset(places)


def within_secret(keys: Sequence[str | int], places: frozenset[Keys]) -> bool:
    """Say whether the value at `keys` is, or lies within, one of the secret references at `places`."""
    return bool(places) and any(tuple(keys[:length]) in places for length in range(len(keys) + 1))


def _references(value: dict[str, Any] | list[Any], keys: Keys) -> Iterator[tuple[Keys, dict[str, Any]]]:
    if isinstance(value, dict) and SECRET_KEY in value:
        yield keys, value
        return
    items: Iterable[tuple[str | int, Any]] = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list):
            yield from _references(item, (*keys, key))


def _check_reference(reference: dict[str, Any], path: str, faults: FaultList) -> None:
    others = [key for key in reference if key != SECRET_KEY]
    if others:
        faults.add(path, f'a secret reference must have no field but "$secret"; remove {listed(others)}')
    name = reference[SECRET_KEY]
    if not isinstance(name, str):
        faults.add(join(path, SECRET_KEY), f"must be the name of a secret as text, is {shown(name)}")
        return
    fault = check_identifier(join(path, SECRET_KEY), name)
    if fault is not None:
        faults.add(fault.path, fault.message)
