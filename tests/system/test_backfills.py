"""Backfills of past ranges from the command line and the client, over a whole stack."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.system.processes import Shell
from tradewind.client import BackfillStatus, Client, CycleOrigin, FiringOutcome, InvalidInput, NotFound
from tradewind.flow import Flow

START = datetime(2026, 10, 1, tzinfo=UTC)


async def test_backfill_runs_each_planned_time_of_past_range(client: Client, shell: Shell) -> None:
    flow = Flow("daily", schedule={"cron": "30 9 * * *", "zone": "Europe/Berlin"})
    flow.node("numbers", "numbers", {"start": 0, "count": 1})
    await client.register_flow("daily", flow)
    made = await shell.json(
        "flow", "backfill", "daily", "--from", "2026-10-01", "--to", "2026-10-04", "--max-running", "2", "--wait"
    )
    assert (made["status"], made["times"], made["completed"]) == ("completed", 3, 3)
    cycles = [cycle async for cycle in client.list_cycles("daily")]
    planned = [datetime(2026, 10, day, 7, 30, tzinfo=UTC) for day in (3, 2, 1)]
    assert [(cycle.planned_time, cycle.origin, cycle.backfill_id) for cycle in cycles] == [
        (moment, CycleOrigin.BACKFILL, 1) for moment in planned
    ]
    lines = [line async for line in client.list_firings("daily", backfill_id=1)]
    assert [(line.planned_time, line.outcome) for line in lines] == [(each, FiringOutcome.FIRED) for each in planned]
    again = await client.backfill_flow("daily", START, START + timedelta(days=2))
    assert (again.times, again.by) == (2, "default")
    listed = await shell.json("flow", "backfills", "daily")
    assert [each["backfill_id"] for each in listed] == [2, 1]
    cancelled = await client.cancel_backfill("daily", 1)
    assert cancelled.status is BackfillStatus.COMPLETED
    with pytest.raises(InvalidInput, match="no times are planned"):
        await client.backfill_flow("daily", START, START + timedelta(hours=1))
    with pytest.raises(NotFound):
        await client.get_backfill("daily", 9)
