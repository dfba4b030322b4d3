"""Ports that tests are given."""

import itertools

import pytest

from tests import ports


def test_free_ports_differ_between_runs_with_the_same_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    free = []
    for _ in range(2):
        monkeypatch.setattr(ports, "_offsets", itertools.count(7))
        free += [ports.free_port(), ports.free_port()]
    assert len(set(free)) == 4
