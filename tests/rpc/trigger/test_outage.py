"""The store hangs under a trigger service and its receivers."""

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from redis.asyncio import Redis
from structlog.testing import capture_logs

from tests.ports import free_port
from tests.rpc.trigger.queues import save
from tests.rpc.trigger.receiving import KEY, Receiver, Replica, now_ms, once
from tests.waiting import until
from tradewind.api.trigger.v1 import trigger_pb2
from tradewind.server.bootstrap import Server
from tradewind.server.partitions import partition_of
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.server.statuses import reason_of
from tradewind.trigger.app import TriggerService
from tradewind.trigger.settings import TriggerSettings
from tradewind.trigger.stores.keys import ACL


@pytest_asyncio.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    """A separate store, which a test may stop."""
    store = EmbeddedStore(tmp_path, port=free_port(), acl_users=[ACL])
    await store.start()
    yield store
    await store.stop()


@pytest_asyncio.fixture
async def replica(store: EmbeddedStore) -> AsyncIterator[Replica]:
    """A trigger service over that store, which hardly ever polls it."""
    settings = TriggerSettings(store_url=store.url_for(ACL.name), trigger_poll_seconds=86_400)
    server = Server([TriggerService(settings)], drain_s=2)
    await server.start()
    replica = Replica(server)
    yield replica
    await replica.stop()


async def test_trigger_claimed_by_a_hung_store_is_redelivered_at_once(store: EmbeddedStore, replica: Replica) -> None:
    before, after = Receiver(replica.stub), Receiver(replica.stub)
    await before.subscribe([partition_of(KEY)])
    tick = await _hang_before_a_claim(store, replica, before)
    try:
        await before.wait_for_error()
    finally:
        _signal(store, signal.SIGCONT)
    await after.subscribe([partition_of(KEY)])
    (due,) = await after.wait_for_due(timeout=3)

    # The claim of the first attempt was made, but nobody learned of it.
    assert due.token.split(":")[1:3] == [tick, "2"]
    assert due.trigger.failures == 0
    await after.ack(due)
    await until(lambda: _completed(replica, tick), "the ack is stored")
    await before.close()
    await after.close()


async def _hang_before_a_claim(store: EmbeddedStore, replica: Replica, receiver: Receiver) -> str:
    """Stop the store so that it hangs on the claim of a trigger, not on an ack or on the claim that follows an ack.

    Returns the trigger's name. On a machine that was busy meanwhile, the claim may be made before: then with another.
    """
    for tries in itertools.count(1):
        tick, first, tick_ms = f"tick{tries}", f"first{tries}", now_ms() + 2500
        await replica.save(tick, once(tick_ms))
        await replica.save(first, once(now_ms()))
        await receiver.wait_for_due(2 * tries - 1)
        await _acknowledge(replica, receiver, first)
        await asyncio.sleep(max(0.0, (tick_ms - now_ms()) / 1000 - 0.7))
        _signal(store, signal.SIGSTOP)
        if now_ms() < tick_ms:
            return tick
        _signal(store, signal.SIGCONT)
        await receiver.wait_for_due(2 * tries)
        await _acknowledge(replica, receiver, tick)
    raise AssertionError("unreachable")


async def _acknowledge(replica: Replica, receiver: Receiver, name: str) -> None:
    await receiver.ack(*(each for each in receiver.due if each.trigger.trigger_id == name))
    await until(lambda: _completed(replica, name), f"the ack of {name} is stored")


def _signal(store: EmbeddedStore, number: int) -> None:
    assert store.pid is not None
    os.kill(store.pid, number)


async def _completed(replica: Replica, name: str) -> bool:
    return (await replica.find(name)).status == trigger_pb2.TRIGGER_STATUS_COMPLETED


async def test_lost_connection_to_the_store_ends_streams_of_schedulers_only(
    store: EmbeddedStore, replica: Replica
) -> None:
    """They then say again what the store may have lost."""
    of_flows, of_queue, again = (Receiver(replica.stub) for _ in range(3))
    await of_flows.subscribe([partition_of(KEY)])
    await of_queue.send(queue="reports")
    await replica.save("one", once(now_ms()))
    await save(replica, "one", once(now_ms()))
    await of_flows.wait_for_due()
    await of_queue.wait_for_due()

    admin: Any = Redis.from_url(store.url_for())
    async with admin:
        await admin.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    error = await of_flows.wait_for_error()
    assert (error.code(), reason_of(error)) == (grpc.StatusCode.UNAVAILABLE, "STORE_UNAVAILABLE")
    await again.subscribe([partition_of(KEY)])
    await again.wait_for_due()
    await save(replica, "two", once(now_ms()))
    await of_queue.wait_for_due(2)
    assert of_queue.error is None
    for receiver in (of_flows, of_queue, again):
        await receiver.close()


@pytest.mark.usefixtures("debug_logging")
async def test_receivers_that_cannot_be_served_are_not_logged(store: EmbeddedStore, replica: Replica) -> None:
    with capture_logs() as lines:
        served = Receiver(replica.stub)
        await served.subscribe([partition_of(KEY)])
        await replica.save("tick", once(now_ms()))
        await served.wait_for_due()
        await served.close()
        await until(lambda: len(_of_receivers(lines)) == 2, "the receiver that was served is logged")
        await store.stop()
        for _ in range(3):
            receiver = Receiver(replica.stub)
            await receiver.subscribe([partition_of(KEY)])
            await receiver.wait_for_error()
    assert _of_receivers(lines) == ["receiver_connected", "receiver_disconnected"]


def _of_receivers(lines: Sequence[Mapping[str, Any]]) -> list[str]:
    return [line["event"] for line in lines if line["event"].startswith("receiver_")]
