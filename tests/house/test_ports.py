"""Ports that tests are given."""

import itertools

import pytest

from tests import ports


def test_a_port_is_told_once_also_to_runs_that_begin_at_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    for _ in range(2):
        monkeypatch.setattr(ports, "_taken", itertools.count(7))
        told += [ports.free_port(), ports.free_port()]
    assert len(set(told)) == 4
