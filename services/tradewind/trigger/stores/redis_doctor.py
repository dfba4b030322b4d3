"""Examines triggers and their indexes in Redis for broken invariants."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tradewind.server.doctor import UNREADABLE, Examined, Examiner, Finding
from tradewind.server.faults import Unreadable
from tradewind.server.partitions import PARTITIONS
from tradewind.server.redis.script import Script
from tradewind.trigger.stores.redis_queues import RedisQueueStore
from tradewind.trigger.stores.replies import ExamineReply
from tradewind.trigger.use_cases.sweep_indexes import indexes_of

_EXAMINE = Script(__name__, "examine_index", ExamineReply)


@dataclass(frozen=True, slots=True)
class RedisIndexExaminer:
    """An Examiner of an index of a queue, or of the flows when `queue` is ""; a place is a rank."""

    queues: RedisQueueStore
    partition: int
    queue: str
    index: str

    async def __call__(self, at: str, records: int, recheck: Collection[str] | None, mend: bool) -> Examined:
        first = int(at or 0)
        found = await self.queues.run(
            _EXAMINE,
            self.partition,
            self.queue,
            self.index,
            first=first,
            limit=records,
            recheck=None if recheck is None else list(recheck),
            mend=mend,
        )
        place = str(first + found.seen) if found.seen == records else ""
        return Examined(found.seen, tuple(Finding(*each) for each in found.findings), place)


@dataclass(frozen=True, slots=True)
class UnreadableQueues:
    """An Examiner that finds the list of the queues of a partition unreadable."""

    error: Unreadable

    async def __call__(self, at: str, records: int, recheck: Collection[str] | None, mend: bool) -> Examined:
        return Examined(1, (Finding(UNREADABLE, self.error.key, str(self.error)),), "")


class RedisTriggerExaminers:
    """The examiners of all indexes; every replica examines all of them."""

    def __init__(self, queues: RedisQueueStore) -> None:
        self._queues = queues

    async def examiners(self, everything: bool) -> Iterable[Examiner]:
        """Return an examiner for each index."""
        examiners: list[Examiner] = []
        for partition in range(PARTITIONS):
            queues = [""]
            try:
                queues += await self._queues.queues(partition)
            except Unreadable as error:
                examiners.append(UnreadableQueues(error))
            examiners += [
                RedisIndexExaminer(self._queues, partition, queue, index)
                for queue in queues
                for index in indexes_of(queue)
            ]
        return examiners
