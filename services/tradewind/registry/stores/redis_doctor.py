"""Examines the registry in Redis for broken invariants."""

from collections.abc import Collection, Iterable

from tradewind.registry.stores.redis import RedisRegistry
from tradewind.registry.stores.rows import Answer
from tradewind.server.doctor import Examined, Examiner, Finding
from tradewind.server.redis.script import Script

_EXAMINE = Script(__name__, "examine", Answer[tuple[int, list[tuple[str, str, str, bool]], int, str]])


class RedisRegistryExaminer:
    """An Examiner of all workers and node types; a place is `<section>:<cursor>`."""

    def __init__(self, registry: RedisRegistry) -> None:
        self._registry = registry

    async def __call__(self, at: str, records: int, recheck: Collection[str] | None, mend: bool) -> Examined:
        section, _, cursor = (at or "1:0").partition(":")
        checked, findings, next_section, cursor = await self._registry.run(
            _EXAMINE,
            section=int(section),
            cursor=cursor,
            count=records,
            mend=mend,
            recheck=None if recheck is None else list(recheck),
        )
        place = f"{next_section}:{cursor}" if next_section else ""
        return Examined(checked, tuple(Finding(*each) for each in findings), place)

    async def examiners(self, everything: bool) -> Iterable[Examiner]:
        """Return only this examiner: every replica examines everything."""
        return [self]
