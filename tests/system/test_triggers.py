"""Users' own triggers: with the client against a running stack, and as a person types commands."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import pytest

from examples.screening.nodes import screen_share
from tests.system.processes import Shell
from tests.waiting import until
from tradewind.client import Client, Exhausted, InvalidInput, NotFound, TriggerStatus, WrongStatus
from tradewind.testing import running_stack


async def test_receiver_gets_and_answers_triggers_of_each_kind() -> None:
    async with running_stack([screen_share]) as client, client.receive_due("mine", credits=5) as due_triggers:
        await client.save_trigger("at", queue="mine", at=datetime.now(UTC), payload={"n": 1})
        due = await asyncio.wait_for(anext(due_triggers), 20)
        assert (due.trigger_id, due.payload, due.event_id) == ("at", {"n": 1}, "")
        await due.ack()
        await until(lambda: _has_status(client, "at", TriggerStatus.COMPLETED), "the single time has fired")

        await client.save_trigger("after", queue="mine", after=0.05)
        due = await asyncio.wait_for(anext(due_triggers), 20)
        await due.nack("not yet", retry_after=0)
        again = await asyncio.wait_for(anext(due_triggers), 20)
        assert (again.trigger.failures, again.trigger.last_error) == (1, "not yet")
        await again.extend(timedelta(minutes=5))
        await again.ack()
        await due.ack()
        await client.save_trigger("tick", queue="mine", every=0.05, max_firings=3)
        planned = []
        for _ in range(3):
            due = await asyncio.wait_for(anext(due_triggers), 20)
            planned.append(due.planned_time)
            await due.ack()
        assert planned == sorted(set(planned), key=lambda time: time or datetime.min.replace(tzinfo=UTC))
        await until(lambda: _has_status(client, "tick", TriggerStatus.COMPLETED), "it has fired as often as it may")
        assert due_triggers.lost(due) is False

        await client.save_trigger("finished", queue="mine", on_finished=["nightly"], statuses=["failed"])
        event = {"flow_id": "nightly", "cycle": 3, "status": "failed"}
        assert (await client.publish_event("flow.finished", event, event_id="nightly:3:0")).fired == 1
        due = await asyncio.wait_for(anext(due_triggers), 20)
        assert (due.event_id, due.event_name, due.event) == ("nightly:3:0", "flow.finished", event)
        await due.ack(finished=True)


async def _has_status(client: Client, trigger_id: str, status: TriggerStatus) -> bool:
    return (await client.get_trigger("mine", trigger_id)).status is status


async def test_receiver_that_stops_waiting_keeps_its_connection() -> None:
    async with running_stack([screen_share]) as client, client.receive_due("mine") as due_triggers:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(due_triggers), 0.2)
        await client.save_trigger("now", queue="mine", after=0)

        due = await asyncio.wait_for(anext(due_triggers), 20)

        assert due.trigger_id == "now"
        await due.ack()


async def test_invalid_trigger_requests_are_refused() -> None:
    async with running_stack([screen_share]) as client:
        with pytest.raises(ValueError, match="exactly one of at, times, after"):
            await client.save_trigger("t", queue="mine")
        with pytest.raises(InvalidInput, match='cannot read "61 \\* \\* \\* \\*" as cron'):
            await client.save_trigger("t", queue="mine", cron="61 * * * *")
        with pytest.raises(NotFound):
            await client.get_trigger("mine", "t")
        with pytest.raises(NotFound):
            await client.redrive_trigger("mine", "t")
        await client.save_trigger("t", queue="mine", at=datetime.now(UTC) + timedelta(hours=1))
        with pytest.raises(WrongStatus, match="only a dead trigger or firing"):
            await client.redrive_trigger("mine", "t")
        await client.save_trigger("listens", queue="mine", event="tick")
        for number in range(500):
            await client.publish_event("tick", event_id=f"e{number}")
        with pytest.raises(Exhausted, match="too many firings"):
            await client.publish_event("tick", event_id="one-more")


async def test_trigger_and_event_commands(shell: Shell) -> None:
    queue = ("-q", "reports")
    saved = await shell("trigger", "save", "nightly", *queue, "--cron", "30 2 * * *", "--time-zone", "Europe/Berlin")
    assert 'cron "30 2 * * *" Europe/Berlin' in saved
    assert "give exactly one of" in await shell("trigger", "save", "nothing", *queue, exit_code=2)
    await shell("trigger", "save", "dear", *queue, "--event", "price", "--filter", '{"price": {"$gt": 100}}')
    assert [each["trigger_id"] for each in await shell.json("trigger", "list", *queue)] == ["nightly", "dear"]
    assert "waiting" in await shell("trigger", "show", "dear", *queue)

    assert "paused (ann)" in await shell("trigger", "pause", "nightly", *queue, "--note", "ann")
    assert "scheduled" in await shell("trigger", "resume", "nightly", *queue)
    assert await shell("trigger", "fire", "nightly", *queue) == "fired nightly\n"
    output = await shell("event", "publish", "price", "--field", "price=101.5", "--id", "quote-7")
    assert output == "event quote-7: 1 trigger matches, 1 fired\n"
    assert 'nobody listens to "prise"' in await shell("event", "publish", "prise")
    lines = (await shell("trigger", "listen", *queue, "--count", "2", "-o", "json")).splitlines()
    assert sorted(json.loads(line)["trigger_id"] for line in lines) == ["dear", "nightly"]
    await shell("trigger", "save", "now", *queue, "--after", "0", "--payload-json", '{"kind": "daily"}')
    assert (await shell("trigger", "listen", *queue, "--count", "1")).endswith(': {"kind": "daily"}\n')

    assert "fired" in await shell("trigger", "firings", *queue, "--trigger", "dear")
    assert await shell.json("trigger", "dead", *queue) == []
    await shell("trigger", "save", "ends", *queue, "--on-finished", "*", "--status", "failed")
    ends = await shell.json("trigger", "show", "ends", *queue)
    assert ends["schedule"] == 'event flow.finished {"status":{"$in":["failed"]}}', "of any flow"
    assert 'no trigger "gone"' in await shell("trigger", "redrive", "gone", *queue, exit_code=2)
    assert await shell("trigger", "remove", "dear", *queue) == "removed dear\n"
    assert await shell("trigger", "remove", "dear", *queue) == "there is no trigger dear\n"
    assert await shell.json("trigger", "fire", "nightly", *queue) == {"trigger_id": "nightly", "fired": True}
    assert await shell.json("trigger", "remove", "nightly", *queue) == {"trigger_id": "nightly", "removed": True}
