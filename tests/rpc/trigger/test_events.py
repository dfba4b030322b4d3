"""Events over a real channel: what they fire, exactly once each, and what happens to a firing that nobody takes."""

import grpc
import pytest

from tests.rpc.trigger.queues import QUEUE, error_of, find, on_event, on_finished, publish, save
from tests.rpc.trigger.receiving import (
    Cast,
    Replica,
    duration,
    reason,
    violations,
)
from tests.waiting import until
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2 as pb2


async def test_event_fires_matching_triggers_once_with_its_payload(cast: Cast, replica: Replica) -> None:
    receiver = await cast.listener(replica, QUEUE)
    other = await cast.listener(replica, "others")
    await save(
        replica, "apple", on_event("price", '{"symbol": "AAPL", "quote.last": {"$gt": 100}}'), payload='{"n": 1}'
    )
    await save(replica, "any", on_event("price"), "others")
    await save(replica, "tock", on_event("tock"))

    low = await publish(replica, "price", '{"symbol": "AAPL", "quote": {"last": 99}}')
    high = await publish(replica, "price", '{"symbol": "AAPL", "quote": {"last": 101}}', "quote-7")
    again = await publish(replica, "price", '{"symbol": "AAPL", "quote": {"last": 101}}', "quote-7")

    assert (low.matched, low.fired, low.listeners, bool(low.event_id)) == (1, 1, 2, True)
    unheard = await publish(replica, "prise")
    assert (unheard.matched, unheard.HasField("listeners"), unheard.listeners) == (0, True, 0)
    assert (high.event_id, high.matched, high.fired, high.duplicates) == ("quote-7", 2, 2, 0)
    assert (again.matched, again.fired, again.duplicates) == (2, 0, 2)
    (due,) = await receiver.wait_for_due(1)
    assert (due.trigger.trigger_id, due.trigger.payload_json) == ("apple", '{"n": 1}')
    assert (due.event.event_id, due.event.name) == ("quote-7", "price")
    assert due.event.payload_json == '{"symbol": "AAPL", "quote": {"last": 101}}'
    await receiver.ack(due)

    async def fired() -> bool:
        apple = await find(replica, "apple")
        return (apple.fired, apple.pending) == (1, 0)

    await until(fired, "the firing was counted")
    assert (await publish(replica, "price", '{"symbol": "AAPL", "quote": {"last": 101}}', "quote-7")).duplicates == 2
    await other.wait_for_due(2)
    assert len(receiver.due) == 1
    assert (await find(replica, "apple")).status == trigger_pb2.TRIGGER_STATUS_WAITING


async def test_finished_flow_fires_triggers_for_its_flow_and_status(cast: Cast, replica: Replica) -> None:
    receiver = await cast.listener(replica, QUEUE)
    saved = await save(replica, "tell-me", on_finished(["nightly", "hourly"], ["failed", "partial"]))

    for cycle, flow_id, status in ((1, "nightly", "completed"), (2, "other", "failed"), (3, "hourly", "failed")):
        payload = f'{{"flow_id": "{flow_id}", "cycle": {cycle}, "status": "{status}"}}'
        await publish(replica, "flow.finished", payload, f"{flow_id}:{cycle}:0")

    (due,) = await receiver.wait_for_due(1)
    assert due.event.event_id == "hourly:3:0"
    assert saved.schedule.event.name == "flow.finished"


async def test_firings_beyond_the_limit_are_dropped_and_the_event_may_be_published_again(cast: Cast) -> None:
    replica = await cast.replica(trigger_pending_firings=2)
    await save(replica, "slow", on_event("tick"))
    for number in range(2):
        assert (await publish(replica, "tick", id=f"e{number}")).fired == 1

    error = await error_of(publish(replica, "tick", id="e2"))
    await save(replica, "fresh", on_event("tick"))
    mixed = await publish(replica, "tick", id="e3")

    assert (error.code(), reason(error)) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL")
    assert (mixed.matched, mixed.fired, mixed.dropped) == (2, 1, 1)
    slow = await find(replica, "slow")
    assert (slow.pending, slow.dropped) == (2, 2)
    receiver = await cast.listener(replica, QUEUE)
    await receiver.ack(*await receiver.wait_for_due(3))

    async def room() -> bool:
        return (await find(replica, "slow")).pending == 0

    await until(room, "the firings were acknowledged")
    assert (await publish(replica, "tick", id="e3")).fired == 1


async def test_nacked_firing_dies_alone_and_can_be_redriven(cast: Cast) -> None:
    replica = await cast.replica(trigger_max_failures=2)
    receiver = await cast.listener(replica, QUEUE)
    await save(replica, "job", on_event("order"))
    await publish(replica, "order", '{"id": 7}', "order-7")
    for count in (1, 2):
        due = (await receiver.wait_for_due(count))[-1]
        await receiver.send(nacks=[pb2.DueTriggerNack(token=due.token, retry_after=duration(0), error="no stock")])

    async def dead() -> list[trigger_pb2.Trigger]:
        return list((await replica.stub.ListDeadTriggers(pb2.ListDeadTriggersRequest(queue=QUEUE))).triggers)

    await until(dead, "the firing is dead")
    (letter,) = await dead()
    assert (letter.trigger_id, letter.event_id, letter.last_error) == ("job", "order-7", "no stock")
    assert letter.payload_json == '{"id": 7}'
    job = await find(replica, "job")
    assert (job.status, job.pending) == (trigger_pb2.TRIGGER_STATUS_WAITING, 0)
    history = await replica.stub.ListFirings(pb2.ListFiringsRequest(queue=QUEUE, trigger_id="job"))
    assert [(line.outcome, line.error, line.event_id) for line in history.firings] == [("dead", "no stock", "order-7")]

    redrive = pb2.RedriveTriggerRequest(queue=QUEUE, trigger_id="job", firing_id=letter.firing_id)
    await replica.stub.RedriveTrigger(redrive)

    again = (await receiver.wait_for_due(3))[-1]
    assert (again.event.event_id, again.trigger.failures) == ("order-7", 0)
    error = await error_of(replica.stub.RedriveTrigger(redrive))
    assert reason(error) == "WRONG_STATUS"
    await receiver.ack(again)
    await until(lambda: _is_unknown(replica, redrive), "the acknowledged firing is no longer known")


async def _is_unknown(replica: Replica, redrive: pb2.RedriveTriggerRequest) -> bool:
    error = await error_of(replica.stub.RedriveTrigger(redrive))
    return reason(error) == "TRIGGER_NOT_FOUND"


@pytest.mark.parametrize(
    ("event", "fault", "message"),
    [
        (pb2.PublishEventRequest(name="a/b"), "name", '"a/b" must begin with'),
        (pb2.PublishEventRequest(name="a", payload_json="[1]"), "payload_json", "must be a JSON object"),
        (pb2.PublishEventRequest(name="a", payload_json="{"), "payload_json", "is not JSON"),
        (
            pb2.PublishEventRequest(name="a", payload_json='{"x":"' + "y" * (64 * 1024 - 7) + '"}'),
            "payload_json",
            "must have at most 65536 bytes, has 65537",
        ),
        (pb2.PublishEventRequest(name="a", event_id="x" * 129), "event_id", "must have at most 128 characters"),
    ],
)
async def test_invalid_event_is_refused(
    replica: Replica, event: pb2.PublishEventRequest, fault: str, message: str
) -> None:
    found = violations(await error_of(replica.stub.PublishEvent(event)))

    assert list(found) == [fault]
    assert found[fault].startswith(message)
