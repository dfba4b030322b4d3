"""Looks through a partition in Redis for broken invariants."""

from collections.abc import Collection

import msgspec

from tradewind.scheduler.domain.flow_record import REMEMBERED_MS
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.doctor import PartitionReport
from tradewind.scheduler.stores.redis.scripts import RETENTION_MS, Scripted, script
from tradewind.server.doctor import Examined, Finding


class _Reply(msgspec.Struct, array_like=True):
    records: int
    findings: list[tuple[str, str, str, bool]]
    section: int
    cursor: str
    running: list[tuple[str, int, int]]
    submitted: list[str]


_EXAMINE = script("examine_partition", _Reply)


class RedisPartitionDoctor:
    """Implements PartitionDoctor; a place is `<section>:<cursor>`."""

    def __init__(self, scripted: Scripted) -> None:
        self._scripted = scripted

    async def examine(
        self, partition: int, epoch: int, at: str, records: int, recheck: Collection[str] | None, mend: bool
    ) -> PartitionReport:
        section, _, cursor = (at or "1:").partition(":")
        reply = await self._scripted.call_for_partition(
            _EXAMINE,
            partition,
            epoch=epoch,
            section=int(section),
            cursor=cursor,
            records=records,
            recheck=None if recheck is None else list(recheck),
            mend=mend,
            request_ms=REMEMBERED_MS,
            retention_ms=RETENTION_MS,
        )
        following = f"{reply.section}:{reply.cursor}" if reply.section else ""
        findings = tuple(Finding(*finding) for finding in reply.findings)
        runs = tuple(map(RunName.parse, reply.submitted))
        return PartitionReport(Examined(reply.records, findings, following), tuple(reply.running), runs)
