"""A shard in Redis in which tests break something, for its doctor to find and mend."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from tests.servers import RedisServer
from tests.stores.node_task_manager.doctors import findings
from tests.stores.node_task_manager.invariants import check_invariants
from tests.stores.node_task_manager.raw_keys import BASE
from tests.stores.node_task_manager.shards import Bench, RedisShard, plan_of
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.server.redis.client import Client

TASK = "flow:0:0:a"
OTHER = "flow:0:0:c"


@dataclass
class Ward(Bench):
    """A shard in Redis, and the store as its operator sees it."""

    server: RedisServer
    redis: RedisShard
    admin: Client

    async def do(self, *command: Any) -> None:
        """Break something; the second word of the command is a key without its prefix."""
        verb, key, *rest = command
        await self.admin.execute_command(verb, f"{BASE}{key}", *rest)

    async def configure(self, **limits: object) -> None:
        config = SystemConfig(version=1, **limits)  # type: ignore[arg-type]
        await self.redis.save_config(config)
        self.redis.configure(config)

    async def found(self, *, mend: bool = False) -> list[tuple[str, str]]:
        return [(each.check, each.subject) for each in await findings(self.redis, mend=mend)]


async def check_mended(ward: Ward, check: str, subject: str) -> None:
    """The fault is found and mended; nothing is left of it or of its consequences."""
    assert (check, subject) in await ward.found()
    assert (check, subject, True) in [
        (each.check, each.subject, each.mended) for each in await findings(ward.redis, mend=True)
    ]
    assert await ward.found() == []
    await check_invariants(ward.server)


async def check_mended_without_invariants(ward: Ward, check: str, subject: str) -> None:
    """Like `check_mended`, for states that a test made up and whose raw keys do not all agree."""
    assert (check, subject) in await ward.found()
    await ward.found(mend=True)
    assert await ward.found() == []


PLAN = plan_of("a>b c", start_to_close_ms=1000, schedule_to_start_ms=1000)
Break = Callable[[Ward], Awaitable[None]]


async def queued(ward: Ward) -> None:
    assert await ward.submit(PLAN) == "accepted"


async def running(ward: Ward) -> None:
    await queued(ward)
    assert len(await ward.take()) == 2
