"""Looking through the caches of a shard in Redis for broken invariants."""

from collections.abc import Callable, Collection

from tradewind.node_task_manager.stores.keys import Keys
from tradewind.server.doctor import Examined, Finding
from tradewind.server.redis.client import Client
from tradewind.server.redis.script import Script

_EXAMINE = Script(__name__, "examine_cache", tuple[int, list[tuple[str, str, str, bool]], str])


class RedisCacheDoctor:
    """A CacheDoctor; `clock` returns 0 for the store's own time."""

    def __init__(self, client: Client, keys: Keys, clock: Callable[[], int]) -> None:
        self._client = client
        self._keys = keys
        self._clock = clock

    async def examine(
        self, name: str, at: str, records: int, recheck: Collection[str] | None, mend: bool, cleaner: str = ""
    ) -> Examined:
        keys = [self._keys.cache_index(name), self._keys.cache_generation(name), self._keys.cleaner()]
        args = {
            "now": self._clock(),
            "name": name,
            "at": at,
            "records": records,
            "recheck": None if recheck is None else list(recheck),
            "mend": mend,
            "cleaner": cleaner,
        }
        examined, findings, following = await _EXAMINE(self._client, keys, args)
        return Examined(examined, tuple(Finding(*each) for each in findings), following)
