"""Looks through a partition in Redis for broken invariants."""

from collections.abc import Collection
from typing import Any

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
        more: dict[str, Any] = {"section": int(section), "cursor": cursor, "records": records, "mend": mend}
        if recheck is not None:
            more["recheck"] = list(recheck)
        args = self._scripted.args(partition, epoch, request_ms=REMEMBERED_MS, retention_ms=RETENTION_MS, **more)
        reply = await _EXAMINE(self._scripted.client, [self._scripted.keys.owner(partition)], args)
        following = f"{reply.section}:{reply.cursor}" if reply.section else ""
        findings = tuple(Finding(*finding) for finding in reply.findings)
        runs = tuple(map(RunName.parse, reply.submitted))
        return PartitionReport(Examined(reply.records, findings, following), tuple(reply.running), runs)
