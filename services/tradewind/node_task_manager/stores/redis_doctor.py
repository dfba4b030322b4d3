"""Looking through a shard in Redis for broken invariants."""

from collections.abc import Collection
from dataclasses import dataclass

from tradewind.node_task_manager.ports.doctor import ShardExamination
from tradewind.node_task_manager.ports.work import Effects
from tradewind.node_task_manager.stores.redis import RedisNodeTaskStore
from tradewind.server.doctor import Examined, Finding
from tradewind.server.redis.script import Script


@dataclass(frozen=True, slots=True)
class _Reply:
    records: int
    findings: tuple[tuple[str, str, str, bool], ...]
    at: str
    effects: Effects


_EXAMINE = Script(__name__, "examine", _Reply)


class RedisShardDoctor:
    """A ShardDoctor; `tasks` knows the limits in force."""

    def __init__(self, tasks: RedisNodeTaskStore) -> None:
        self._tasks = tasks

    async def examine(
        self, at: str, records: int, recheck: Collection[str] | None, mend: bool, cleaner: str = ""
    ) -> ShardExamination:
        names = None if recheck is None else list(recheck)
        more = {"at": at, "records": records, "recheck": names, "mend": mend, "cleaner": cleaner}
        reply = await self._tasks.run_script(_EXAMINE, more)
        findings = tuple(Finding(*finding) for finding in reply.findings)
        return ShardExamination(Examined(reply.records, findings, reply.at), reply.effects)
