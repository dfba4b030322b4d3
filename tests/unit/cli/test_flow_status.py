"""`tradewind flow status`: where a flow stands, and what its definition chooses."""

from typing import Any

import pytest

from tests.unit.cli.shell import Shell
from tests.unit.client.fake_scheduler import FLOW
from tests.unit.client.fake_stack import FakeStack


def test_status_prints_flow_and_last_cycle(shell: Shell) -> None:
    shell("flow", "run", "momentum")

    assert shell("flow", "status", "momentum").lines == [
        "flow        momentum",
        "status      registered",
        "schedule    every 5m",
        "kept        the newest 100 cycles",
        "nodes       2 in 1 component",
        "revision    1",
        "last cycle  0 completed in 250 ms (2 completed)",
    ]
    described = shell("flow", "status", "momentum", "-o", "json").json
    assert described["flow"]["flow_id"] == "momentum"
    assert described["current_cycle"]["counts"]["completed"] == 2
    assert described["statistics"]["total_nodes"] == 2


def test_status_prints_what_flow_does_not_leave_at_defaults(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.add_flow(
        "nightly",
        config={
            **{key: value for key, value in FLOW.items() if key != "interval"},
            "schedule": {"cron": "0 2 * * *", "zone": "Europe/Berlin", "jitter": "1500ms", "max_cycles": 60},
            "description": "What was traded.\nFor the desk.",
            "overlap": "queue_one",
            "failure_policy": "fail_fast",
            "on_failure": ["page", "undo"],
            "finally": ["close"],
            "timeout": 1800,
            "pause_after_failures": 3,
            "max_running": 1,
            "keep_cycles": 20,
            "keep_for": 86400,
        },
    )

    assert shell("flow", "status", "nightly").lines == [
        "flow            nightly",
        "status          registered",
        "schedule        0 2 * * * (Europe/Berlin), max_cycles 60, jitter 1500ms",
        "description     What was traded.",
        "                For the desk.",
        "overlap         queue_one",
        "failure policy  fail_fast",
        "on failure      page, undo",
        "finally         close",
        "timeout         30m for a cycle",
        "pause after     3 failed cycles in a row",
        "max running     1 node at once, over all cycles",
        "kept            the newest 20 cycles, for 1d",
        "nodes           2 in 1 component",
        "revision        1",
    ]


@pytest.mark.parametrize(
    ("schedule", "text"),
    [
        ({"interval": 0}, "when called, or once when started"),
        ({"interval": 90}, "every 90s"),
        ({"interval": "500ms"}, "every 500ms"),
        ({"schedule": {"interval": 3600, "start": "2026-01-01T00:00:00Z"}}, "every 1h, start 2026-01-01T00:00:00Z"),
    ],
)
def test_status_prints_schedule_in_units_of_definitions(
    shell: Shell, stack: FakeStack, schedule: dict[str, Any], text: str
) -> None:
    stack.scheduler.add_flow("nightly", config={"nodes": FLOW["nodes"], **schedule})

    assert f"schedule  {text}" in shell("flow", "status", "nightly").lines
