"""Ends of cycles are reported to the trigger service while somebody listens."""

import json

from tests.rpc.scheduler.conftest import Client, Peers, Start
from tests.waiting import until
from tradewind.scheduler.domain.event_schedule import FLOW_FINISHED


def published_events(peers: Peers) -> list[tuple[str, str, str]]:
    """Return the name, flow and status of each event."""
    payloads = [(event.name, json.loads(event.payload_json)) for event in peers.triggers.events]
    return [(name, payload["flow_id"], payload["status"]) for name, payload in payloads]


async def wait_until_ends_are_published(scheduler: Client, peers: Peers) -> None:
    """Run cycles until the scheduler knows of a listener and reports an end."""
    peers.triggers.listeners.add(FLOW_FINISHED)
    await scheduler.register("probe")

    async def end_is_published() -> bool:
        await scheduler.run("probe")
        return any(flow_id == "probe" for _, flow_id, _ in published_events(peers))

    await until(end_is_published, "an end is published")


async def test_end_is_published_while_there_are_listeners(start: Start, peers: Peers) -> None:
    scheduler = await start(scheduler_listeners_seconds=0.05)
    await until(lambda: peers.triggers.listens("f"), "the scheduler listens")
    await until(lambda: not scheduler.service.publishes_ends, "the scheduler knows that nobody listens")
    await scheduler.register(user_id="ada")
    await scheduler.run()
    assert peers.triggers.events == []
    await wait_until_ends_are_published(scheduler, peers)
    cycle = await scheduler.run()
    await until(lambda: (FLOW_FINISHED, "f", "completed") in published_events(peers), "it is published")
    (event,) = [event for event in peers.triggers.events if event.event_id == cycle.run_id]
    payload = json.loads(event.payload_json)
    assert payload == {
        "flow_id": "f",
        "cycle": 1,
        "run": 0,
        "run_id": cycle.run_id,
        "status": "completed",
        "user_id": "ada",
        "origin": "run_flow",
        "error_code": "",
        "planned_time": payload["planned_time"],
        "start_time": payload["start_time"],
        "end_time": payload["end_time"],
    }
    assert cycle.end_time.ToJsonString() == payload["end_time"]


async def test_unpublished_end_is_published_by_the_next_scheduler(start: Start, peers: Peers) -> None:
    first = await start(scheduler_listeners_seconds=0.05, scheduler_lease_seconds=0.5)
    await until(lambda: peers.triggers.listens("f"), "the scheduler listens")
    await wait_until_ends_are_published(first, peers)
    await first.register()
    peers.triggers.down = True
    cycle = await first.run()
    await first.server.stop()
    assert all(event.event_id != cycle.run_id for event in peers.triggers.events)
    peers.triggers.down = False
    peers.triggers.listeners.clear()
    await start(scheduler_listeners_seconds=600, scheduler_lease_seconds=0.5)
    await until(
        lambda: any(e.event_id == cycle.run_id for e in peers.triggers.events), "the next scheduler publishes the end"
    )
