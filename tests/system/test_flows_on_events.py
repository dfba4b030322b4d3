"""Flows that begin on an event or at another flow's end, as a person types the commands."""

import json
from pathlib import Path

import pytest

from tests.system.processes import Shell
from tests.waiting import until
from tradewind.client import Client, CycleStatus, InvalidInput
from tradewind.flow import Flow

ON_ORDER = {"event": {"name": "order", "filter": {"start": {"$gt": 1}}}}


@pytest.fixture(autouse=True)
def no_listener_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the scheduler from polling for listeners, so that it must be notified of them."""
    monkeypatch.setenv("TRADEWIND_SCHEDULER_LISTENERS_SECONDS", "600")


async def firings(shell: Shell, flow_id: str) -> list[tuple[str, str, int | None]]:
    """Return event, outcome and cycle of each firing, the earliest first."""
    lines = await shell.json("flow", "firings", flow_id)
    return [(line["event_id"], line["outcome"], line["cycle"]) for line in reversed(lines)]


async def test_event_begins_flow_and_its_end_begins_another(shell: Shell, client: Client, tmp_path: Path) -> None:
    sums = Flow("sums", schedule=ON_ORDER, overlap="queue_all")
    sums.node("numbers", "numbers", {"count": 2})["numbers"] >> sums.node("total", "total")["numbers"]
    after = Flow("after", schedule={"flow_finished": {"flow_ids": ["sums"], "statuses": ["completed"]}})
    after.node("numbers", "numbers")
    for flow in (sums, after):
        path = tmp_path / f"{flow.flow_id}.json"
        path.write_text(flow.to_json(), encoding="utf-8")
        await shell("flow", "register", flow.flow_id, str(path))
    begins_on = 'begins on event "order" with {"start":{"$gt":1}}'
    plan = await shell("flow", "plan", str(tmp_path / "sums.json"))
    assert begins_on in plan
    assert "no more times are planned" not in plan
    assert begins_on in await shell("flow", "start", "sums")
    assert 'begins on the end of flow "sums" as completed' in await shell("flow", "start", "after")
    assert await shell("flow", "next", "sums") == f"{begins_on}\n"
    assert "none has come yet" in await shell("explain", "sums")

    published: list[str] = []

    async def chained() -> bool:
        # The first events may come before the trigger service listens, and the first ends before they are reported.
        order = f"order {len(published)}"
        output = [await shell("event", "publish", "order", "--field", "start=5", "--id", order) for _ in range(2)]
        if "1 trigger matches" in output[1]:
            published.append(order)
        return bool([cycle async for cycle in client.list_cycles("after", statuses=[CycleStatus.COMPLETED])])

    await until(chained, "the end of the first flow has begun the second", timeout=60)
    assert "0 triggers match" in await shell("event", "publish", "order", "--field", "start=1")

    async def all_ended() -> bool:
        ended = [cycle async for cycle in client.list_cycles("sums", statuses=[CycleStatus.COMPLETED])]
        return len(ended) == len(published)

    await until(all_ended, "each event has had its cycle")
    sums_cycles = {cycle.run_id: cycle async for cycle in client.list_cycles("sums")}
    assert sorted(cycle.cycle for cycle in sums_cycles.values()) == list(range(len(published)))
    assert sorted(await firings(shell, "sums")) == sorted(
        (cycle.inputs["event"]["id"], "fired", cycle.cycle) for cycle in sums_cycles.values()
    )
    for cycle in sums_cycles.values():
        assert cycle.inputs == {"start": 5, "event": {"id": cycle.inputs["event"]["id"], "name": "order"}}
    after_cycles = [cycle async for cycle in client.list_cycles("after")]
    for cycle in after_cycles:
        first = sums_cycles[cycle.inputs["event"]["id"]]
        assert (cycle.inputs["flow_id"], cycle.inputs["cycle"]) == ("sums", first.cycle)
    assert len({cycle.inputs["event"]["id"] for cycle in after_cycles}) == len(after_cycles)
    assert "event order 0" in await shell("flow", "firings", "sums")
    assert "the flow's last event came at" in await shell("explain", "after")

    described = await client.get_flow("sums")
    assert (described.flow.begins_on, described.flow.next_execution) == (
        begins_on.removeprefix("begins on "),
        None,
    )
    assert f"on {described.flow.begins_on}" in await shell("flow", "status", "sums")
    with pytest.raises(InvalidInput, match="sums -> after -> sums"):
        await client.update_flow("sums", {"schedule": {"flow_finished": {"flow_ids": ["after"]}}})
    assert json.loads(described.flow.config_json)["schedule"] == ON_ORDER
