"""A failover by hand: services go to the new master although the old one still takes writes."""

from pathlib import Path

from redis.exceptions import RedisError

from tests.system.replicas.failover import FailoverStore
from tests.waiting import until
from tradewind.registry.settings import RegistrySettings
from tradewind.server.redis.acl import ADMIN
from tradewind.server.redis.data_version import DataVersion
from tradewind.server.redis.link import RedisLink

CHANNEL = "trading_flow:{registry}:news"


async def test_link_follows_sentinel_to_the_new_master(tmp_path: Path) -> None:
    store = FailoverStore(tmp_path, down_after_s=30)
    await store.start()
    link = RedisLink(
        RegistrySettings(store_url=store.url_for(ADMIN)), DataVersion("trading_flow:{registry}:data_version")
    )
    received: list[bytes] = []
    losses: list[None] = []
    try:
        await link.open()
        await link.subscriber.subscribe(CHANNEL, lambda _channel, message: received.append(message))
        link.client.losses.listen(lambda: losses.append(None))
        await store.fail_over()
        received.clear()

        async def arrives() -> bool:
            try:
                await link.client.publish(CHANNEL, "from the pool")
                await link.client.call(CHANNEL, "PUBLISH", CHANNEL, "from the pipe")
                return len(set(received)) == 2 and await store.is_new_master(link.client)
            except (RedisError, OSError):
                return False

        await until(arrives, "calls and messages reach the new master", timeout=30)
        assert len(losses) == 1
    finally:
        await link.close()
        await store.stop()
