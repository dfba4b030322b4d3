"""Every replica that listens is told what there is to do."""

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


async def test_who_listens_hears_what_there_is_to_do_until_it_does_not(bench: Bench, other: WakeChannel) -> None:
    first: list[WakeUp] = []
    second: list[WakeUp] = []
    end = await other.listen(first.append, lambda: None)
    await other.listen(second.append, lambda: None)
    told = [WakeUp(work, 15, at) for at, work in enumerate(Work)]
    for wake_up in told:
        await bench.stores.wakes.publish(wake_up)
    # On a cluster messages come through several nodes, in any order.
    await until(lambda: set(first) == set(second) == set(told), "all is heard")
    end()
    last = WakeUp(Work.JOBS, 0, 5000)
    await bench.stores.wakes.publish(last)
    await until(lambda: last in second, "the last one is heard")
    assert last not in first


async def test_what_a_later_release_says_does_not_deafen_this_one(bench: Bench, server: RedisServer | None) -> None:
    if server is None:
        return
    subscriber = Subscriber(server.url(ACL.name))
    subscriber.start()
    heard: list[WakeUp] = []
    await RedisWakeChannel(server.connect(ACL.name), subscriber, Keys()).listen(heard.append, lambda: None)
    for message in ("chores 1 0", "jobs", "jobs x 0", "\xff"):
        await server.connect(ACL.name).publish(Keys().wake(), message)
    await bench.stores.wakes.publish(WakeUp(Work.JOBS, 1, 0))
    await until(lambda: heard == [WakeUp(Work.JOBS, 1, 0)], "what it knows is heard")
    await subscriber.stop()
