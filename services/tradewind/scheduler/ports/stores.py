"""All the stores in which the scheduler keeps its data."""

from typing import Protocol

from tradewind.scheduler.ports.backfills import Backfills
from tradewind.scheduler.ports.bulk_jobs import BulkJobs
from tradewind.scheduler.ports.changes import ChangeFeed
from tradewind.scheduler.ports.cycles import ChainStateRepository, CycleRecords
from tradewind.scheduler.ports.doctor import PartitionDoctor
from tradewind.scheduler.ports.due_sets import OpenRuns, Outbox
from tradewind.scheduler.ports.ends import Ends
from tradewind.scheduler.ports.firings import Firings
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.ports.logs import LogLines
from tradewind.scheduler.ports.memories import FlowMemories
from tradewind.scheduler.ports.owning import Partitions
from tradewind.scheduler.ports.revisions import Revisions
from tradewind.scheduler.ports.waking import WakeChannel


class Stores(Protocol):
    """Every store; all work on the same data."""

    @property
    def flows(self) -> FlowRecords: ...

    @property
    def revisions(self) -> Revisions: ...

    @property
    def cycles(self) -> CycleRecords: ...

    @property
    def states(self) -> ChainStateRepository: ...

    @property
    def open_runs(self) -> OpenRuns: ...

    @property
    def outbox(self) -> Outbox: ...

    @property
    def firings(self) -> Firings: ...

    @property
    def logs(self) -> LogLines: ...

    @property
    def memories(self) -> FlowMemories: ...

    @property
    def changes(self) -> ChangeFeed: ...

    @property
    def wakes(self) -> WakeChannel: ...

    @property
    def partitions(self) -> Partitions: ...

    @property
    def backfills(self) -> Backfills: ...

    @property
    def jobs(self) -> BulkJobs: ...

    @property
    def ends(self) -> Ends: ...

    @property
    def returns(self) -> Ends: ...

    @property
    def doctor(self) -> PartitionDoctor: ...
