"""Every replica that listens receives wake-ups."""

import pytest

from tests.servers import RedisServer
from tests.stores.scheduler.bench import Bench
from tests.waiting import until
from tradewind.scheduler.ports.waking import WakeChannel, WakeUp, Work
from tradewind.scheduler.stores.keys import ACL, Keys
from tradewind.scheduler.stores.redis.wakes import RedisWakeChannel
from tradewind.server.redis.subscriber import Subscriber


@pytest.fixture
def other(bench: Bench, server: RedisServer | None, subscriber: Subscriber | None) -> WakeChannel:
    """The channel of another replica."""
    if server is None or subscriber is None:
        return bench.stores.wakes
    return RedisWakeChannel(server.connect(ACL.name), subscriber, Keys())


async def test_listeners_receive_wake_ups_until_they_stop(bench: Bench, other: WakeChannel) -> None:
    first: list[WakeUp] = []
    second: list[WakeUp] = []
    stop = await other.listen(first.append, lambda: None)
    await other.listen(second.append, lambda: None)
    sent = [WakeUp(work, 15, at) for at, work in enumerate(Work)]
    for wake_up in sent:
        await bench.stores.wakes.publish(wake_up)
    # On a cluster messages come through several nodes, in any order.
    await until(lambda: set(first) == set(second) == set(sent), "both listeners received all")
    stop()
    last = WakeUp(Work.JOBS, 0, 5000)
    await bench.stores.wakes.publish(last)
    await until(lambda: last in second, "the second listener received the last")
    assert last not in first


async def test_unknown_messages_of_later_releases_are_ignored(redis_server: RedisServer) -> None:
    client, subscriber = redis_server.connect(ACL.name), Subscriber(redis_server.url(ACL.name))
    subscriber.start()
    channel = RedisWakeChannel(client, subscriber, Keys())
    received: list[WakeUp] = []
    await channel.listen(received.append, lambda: None)
    for message in ("chores 1 0", "jobs", "jobs x 0", "\xff"):
        await client.publish(Keys().wake(), message)
    await channel.publish(WakeUp(Work.JOBS, 1, 0))
    await until(lambda: received == [WakeUp(Work.JOBS, 1, 0)], "the known message is received")
    await subscriber.stop()
