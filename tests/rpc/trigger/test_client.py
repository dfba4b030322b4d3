"""Receiving due triggers with the client, as users' own programs do."""

import asyncio
from collections import Counter

from tests.rpc.trigger.receiving import Cast
from tests.waiting import until
from tradewind.client import Client, TriggerStatus

QUEUE = "reports"


async def test_slow_receiver_handles_each_trigger_once(cast: Cast) -> None:
    """A claim does not lapse while its trigger waits for its turn at the receiver."""
    replica = await cast.replica(trigger_lease_seconds=4)
    names = [f"t{n}" for n in range(6)]
    async with Client(replica.server.address) as client:
        for name in names:
            await client.save_trigger(name, queue=QUEUE, after=0)
        handled: Counter[str] = Counter()
        async with client.receive_due(QUEUE) as due_triggers:
            while len(handled) < len(names):
                due = await asyncio.wait_for(anext(due_triggers), 20)
                await asyncio.sleep(0.9)
                handled[due.trigger_id] += 1
                await due.ack()

        async def completed() -> bool:
            records = [await client.get_trigger(QUEUE, name) for name in names]
            return all(record.status is TriggerStatus.COMPLETED and not record.failures for record in records)

        await until(completed, "all are acknowledged, and none has lapsed")
        assert set(handled.values()) == {1}


async def test_receiver_that_leaves_learns_which_answers_had_no_effect(cast: Cast) -> None:
    replica = await cast.replica()
    async with Client(replica.server.address) as client:
        # While an answer frees room for the third, the server claims it.
        for name in ("kept", "removed", "waiting"):
            await client.save_trigger(name, queue=QUEUE, after=0)
        async with client.receive_due(QUEUE, credits=2) as due_triggers:
            due = [await asyncio.wait_for(anext(due_triggers), 20) for _ in range(2)]
            await client.remove_trigger(QUEUE, "removed")
            for each in due:
                await each.ack()
        assert {each.trigger_id: due_triggers.lost(each) for each in due} == {"kept": False, "removed": True}
