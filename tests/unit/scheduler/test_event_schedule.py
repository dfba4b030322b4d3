"""Schedules of flows that begin on events: how they are read, what they listen for, what a cycle is given."""

import json
from typing import Any

import pytest

from tradewind.scheduler.domain.chain_state import ChainState, CycleFacts, CycleOrigin
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.due import DueEvent
from tradewind.scheduler.domain.ended_run import EndedRun
from tradewind.scheduler.domain.event_schedule import FINISHED_FIELDS, FLOW_FINISHED, EventSchedule
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.fields import Fields
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.schedule_definition import ScheduleDefinition, read_schedule, schedule_from_json
from tradewind.server.schedules.event_filter import EventFilter

END = 1_900_000_800_000


def read(weather: dict[str, Any]) -> ScheduleDefinition:
    faults = FaultList()
    definition = read_schedule(Fields(weather, "schedule", faults))
    assert not faults.violations()
    return definition


@pytest.mark.parametrize(
    ("weather", "description"),
    [
        ({"event": {"name": "price"}}, 'event "price"'),
        (
            {"event": {"name": "price", "filter": {"symbol": "AAPL", "price": {"$gt": 1.5}}}, "max_cycles": 3},
            'event "price" with {"price":{"$gt":1.5},"symbol":"AAPL"}',
        ),
        ({"flow_finished": {"flow_ids": ["a", "b"]}, "catch_up_window": 60}, 'the end of flow "a", "b"'),
        ({"flow_finished": {"flow_ids": ["a", "b", "c"]}}, 'the end of flow "a", "b", "c"'),
        (
            {
                "flow_finished": {"flow_ids": ["a", "b", "c", "d"], "statuses": ["failed", "timeout"]},
                "start": "2030-03-17T18:00:00Z",
                "end": "2031-01-01T00:00:00Z",
            },
            'the end of flow "a", "b", "c" or 1 more as failed or timeout',
        ),
    ],
)
def test_event_schedule_round_trips_and_describes_its_event(weather: dict[str, Any], description: str) -> None:
    definition = read(weather)
    assert definition.to_weather() == weather
    assert schedule_from_json(definition.to_json()) == definition
    assert definition.on is not None
    assert definition.on.description == description


@pytest.mark.parametrize("name", ["event", "flow_finished"])
def test_events_that_are_no_object_are_one_fault(name: str) -> None:
    faults = FaultList()
    read_schedule(Fields({name: 5}, "schedule", faults))
    assert [(each.path, each.message) for each in faults.violations()] == [
        (f"schedule.{name}", "must be an object, is 5")
    ]


def test_filters_are_equal_in_any_order_of_fields() -> None:
    first = read({"event": {"name": "a", "filter": {"x": 1, "y": 2}}})
    assert first == read({"event": {"name": "a", "filter": {"y": 2, "x": 1}}})
    assert read({"event": {"name": "a", "filter": {}}}) == read({"event": {"name": "a"}})


def test_event_schedule_plans_no_times_and_listens_until_its_end() -> None:
    definition = read({"event": {"name": "a"}})
    assert not definition.once
    assert not definition.begins_with_the_flow
    assert definition.planned(5).after(0) is None
    assert definition.standby_ms == -1
    assert ScheduleDefinition(end_ms=END, on=EventSchedule("a")).standby_ms == -END
    assert ScheduleDefinition(1000).standby_ms == 0


def test_event_older_than_the_catch_up_window_is_missed() -> None:
    definition = read({"event": {"name": "a"}, "catch_up_window": "1m"})
    assert not definition.is_missed(END, END + 60_000)
    assert definition.is_missed(END, END + 60_001)


def ended(**fields: Any) -> dict[str, Any]:
    return {"flow_id": "a", "status": "completed", "origin": "schedule", "user_id": "ann"} | fields


@pytest.mark.parametrize(
    ("statuses", "payload", "matches"),
    [
        ((), ended(), True),
        ((), ended(status="failed"), True),
        (("failed",), ended(), False),
        (("failed",), ended(status="failed"), True),
        ((), ended(flow_id="c"), False),
        ((), ended(origin="sub_flow"), False),
        ((), ended(user_id="bob"), False),
        ((), {"flow_id": "a", "status": "completed", "user_id": "ann"}, True),
        ((), {"flow_id": "a", "status": "completed"}, False),
    ],
)
def test_filter_matches_ends_of_the_users_named_flows_except_as_sub_flows(
    statuses: tuple[str, ...], payload: dict[str, Any], matches: bool
) -> None:
    schedule = EventSchedule(flow_ids=("a", "b"), statuses=statuses)
    assert schedule.event_name == FLOW_FINISHED
    assert EventFilter(schedule.event_filter("ann")).matches(payload) is matches


@pytest.mark.parametrize(
    ("payload", "inputs"),
    [
        ("", {"event": {"id": "e 1", "name": "price"}}),
        ('{"symbol": "ü", "n": 1}', {"symbol": "ü", "n": 1, "event": {"id": "e 1", "name": "price"}}),
        ('{"event": 7}', {"event": 7}),
    ],
)
def test_event_payload_becomes_the_inputs_of_the_cycle(payload: str, inputs: dict[str, Any]) -> None:
    assert json.loads(DueEvent("e 1", "price", payload).inputs_json) == inputs


def test_end_of_a_flow_gives_the_inputs_that_its_schedule_names() -> None:
    facts = CycleFacts("r0", "default", 1, CycleOrigin.SCHEDULE, 1, 1, 0, 6, 2, FailurePolicy.SKIP_DOWNSTREAM)
    payload = EndedRun(RunName("f", 7), "r0", CycleStatus.COMPLETED, 5).payload(ChainState(RunName("f", 7), facts, 4))
    assert set(json.loads(payload)) == set(FINISHED_FIELDS)
    inputs = json.loads(DueEvent("r0", FLOW_FINISHED, payload).inputs_json)
    assert set(inputs) == set(EventSchedule(flow_ids=("f",)).inputs)
