"""A partition that a doctor examines, and what its operator does to it."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.stores.scheduler.bench import Bench
from tests.unit.scheduler.memory_scheduler import wakes_nobody
from tradewind.scheduler.domain.chain_state import ChainState, ComponentEnd
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.sub_flow import SubFlowWait
from tradewind.scheduler.domain.submission import ComponentView
from tradewind.scheduler.ports.peers import PeerUnavailable
from tradewind.scheduler.stores.redis import RedisStores
from tradewind.scheduler.use_cases.doctor import CheckPeers, ExaminePartitions
from tradewind.scheduler.use_cases.own_partitions import OwnPartitions
from tradewind.server.doctor import Doctor, Finding
from tradewind.server.partitions import partition_of
from tradewind.server.redis.client import Client

BASE = f"trading_flow:{{f{partition_of('f')}}}:"


@dataclass
class Peers:
    """The parts of the trigger service and the node task manager that a doctor calls."""

    epochs: dict[str, int] = field(default_factory=dict)
    known: set[str] = field(default_factory=set)
    waiting: list[SubFlowWait] = field(default_factory=list)
    away: bool = False

    async def epochs_of(self, flow_ids: Sequence[str]) -> Mapping[str, int]:
        if self.away:
            raise PeerUnavailable("trigger service", "away")
        return {flow_id: epoch for flow_id, epoch in self.epochs.items() if flow_id in flow_ids}

    async def components(self, runs: Sequence[ChainState]) -> list[ComponentView]:
        if self.away:
            raise PeerUnavailable("node task manager", "away")
        return [
            ComponentView(state.name, state.facts.run_id, "0", False, ComponentEnd())
            for state in runs
            if str(state.name) in self.known
        ]

    async def waits(self, run: RunName, user_id: str) -> AsyncIterator[SubFlowWait]:
        for wait in self.waiting:
            yield wait


@dataclass
class Ward(Bench):
    """Stores in Redis, and the store as its operator sees it."""

    admin: Client = None  # type: ignore[assignment]
    peers: Peers = field(default_factory=Peers)

    async def do(self, *command: Any) -> None:
        """Break something; the second word of the command is a key without its prefix."""
        verb, key, *rest = command
        await self.admin.execute_command(verb, f"{BASE}{key}", *rest)

    async def findings(self, *, mend: bool = False, everything: bool = True) -> list[Finding]:
        stores, peers = self.stores, self.peers
        assert isinstance(stores, RedisStores)
        asked: Any = peers
        ask = CheckPeers(asked, asked, asked, stores, wakes_nobody, self.clock)
        own = OwnPartitions(stores.partitions, stores.wakes)
        examiners = ExaminePartitions(stores.doctor, ask, own)
        if not everything:
            assert await examiners(False) == []
            await own.acquire()
            assert len(list(await examiners(False))) == 16
        doctor = Doctor(examiners, recheck_s=0)
        return [finding async for step in doctor.run(mend=mend) for finding in step.findings]

    async def found(self, *, mend: bool = False) -> list[tuple[str, str]]:
        return [(each.check, each.subject) for each in await self.findings(mend=mend)]
