"""Changing fields of a flow without its graph."""

from time import process_time
from typing import Any

import pytest

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.flow_update import UPDATABLE, check_mask, updated
from tradewind.scheduler.domain.weather import FLOW_FIELDS

GRAPH = {"nodes": [{"id": "a", "type": "t"}], "edges": []}


@pytest.mark.parametrize(
    ("standing", "given", "paths", "expected"),
    [
        ({"interval": 60}, {"interval": 5}, ["interval"], {"interval": 5}),
        ({"interval": 60}, {"interval": 5, "overlap": "allow"}, ["overlap"], {"interval": 60, "overlap": "allow"}),
        ({"interval": 60, "overlap": "allow", "timeout": 9}, {}, ["overlap"], {"interval": 60, "timeout": 9}),
        ({"interval": 60}, {"schedule": {"cron": "* * * * *"}}, ["schedule"], {"schedule": {"cron": "* * * * *"}}),
        ({"schedule": {"cron": "* * * * *"}}, {"interval": 5}, ["interval"], {"schedule": {"interval": 5}}),
        (
            {"schedule": {"interval": 60, "jitter": 5, "end": "2030-01-01T00:00:00Z"}},
            {"interval": 5},
            ["interval"],
            {"schedule": {"interval": 5, "jitter": 5, "end": "2030-01-01T00:00:00Z"}},
        ),
        ({"schedule": {"interval": 60, "jitter": 5}}, {}, ["interval"], {"schedule": {"jitter": 5}}),
        ({"schedule": {"interval": 60}, "timeout": 9}, {}, ["timeout"], {"schedule": {"interval": 60}}),
        (
            {"interval": 60},
            {"interval": 5, "schedule": {"jitter": 5}},
            ["interval", "schedule"],
            {"interval": 5, "schedule": {"jitter": 5}},
        ),
        (
            {"schedule": {"cron": "* * * * *", "jitter": 5}},
            {"schedule": {"cron": "0 * * * *", "jitter": 9}},
            ["schedule.jitter"],
            {"schedule": {"cron": "* * * * *", "jitter": 9}},
        ),
        (
            {"schedule": {"cron": "* * * * *", "jitter": 5}},
            {},
            ["schedule.jitter"],
            {"schedule": {"cron": "* * * * *"}},
        ),
        (
            {"interval": 60},
            {"schedule": {"jitter": 9}},
            ["schedule.jitter"],
            {"schedule": {"interval": 60, "jitter": 9}},
        ),
        (
            {"interval": 60},
            {"schedule": {"cron": "0 * * * *"}},
            ["schedule.cron", "interval"],
            {"schedule": {"cron": "0 * * * *"}},
        ),
        (
            {"schedule": {"interval": 60, "max_cycles": 9}},
            {"schedule": {"cron": "0 * * * *"}},
            ["interval", "schedule.cron"],
            {"schedule": {"cron": "0 * * * *", "max_cycles": 9}},
        ),
        (
            {"interval": 60},
            {"schedule": {"cron": "0 * * * *"}},
            ["schedule.cron"],
            {"schedule": {"cron": "0 * * * *"}},
        ),
        (
            {"interval": 60},
            {"interval": 5, "schedule": {"jitter": 1}},
            ["schedule.jitter", "interval"],
            {"schedule": {"interval": 5, "jitter": 1}},
        ),
        ({"labels": {"a": "b"}}, {"labels": {"c": "d"}}, ["labels"], {"labels": {"c": "d"}}),
    ],
)
def test_only_fields_in_the_mask_are_updated(
    standing: dict[str, Any], given: dict[str, Any], paths: list[str], expected: dict[str, Any]
) -> None:
    before = {**standing, **GRAPH}
    assert updated(before, given, paths) == {**expected, **GRAPH}
    assert before == {**standing, **GRAPH}


def test_all_fields_but_those_of_the_graph_are_updatable() -> None:
    # The other fields of a flow name nodes of its graph.
    assert set(FLOW_FIELDS) - set(UPDATABLE) <= {"nodes", "edges", "on_failure", "finally"}


def test_mask_faults_are_reported_path_by_path() -> None:
    faults = FaultList()
    check_mask(["overlap", "nodes", "overlp", "schedule.zone", "schedule.colour", "edges[0].target"], faults)
    messages = {fault.path: fault.message for fault in faults.violations()}
    assert list(messages) == [f"update_mask.paths[{place}]" for place in (1, 2, 4, 5)]
    assert "register the flow again" in messages["update_mask.paths[1]"]
    assert 'did you mean "overlap"?' in messages["update_mask.paths[2]"]
    assert "register the flow again" in messages["update_mask.paths[5]"]


def test_empty_mask_is_refused() -> None:
    faults = FaultList()
    check_mask([], faults)
    assert [fault.path for fault in faults.violations()] == ["update_mask"]


@pytest.mark.parametrize("name", ["nodes", "edges", "on_failure", "finally"])
def test_mask_fault_says_that_a_field_is_part_of_the_graph(name: str) -> None:
    faults = FaultList()
    check_mask([name], faults)
    (fault,) = faults.violations()
    assert "part of the graph" in fault.message


def test_mask_of_many_unknown_fields_is_refused_within_a_second() -> None:
    """A message has room for more than a million."""
    faults = FaultList()
    began = process_time()
    check_mask(["a"] * 1_300_000, faults)
    assert [fault.path for fault in faults.violations()] == ["update_mask.paths"]
    assert process_time() - began < 1
