"""Reruns, and who asked for a rerun or a stop."""

from dataclasses import dataclass
from datetime import datetime

from tradewind.api.scheduler.v1 import cycle_pb2, flow_pb2
from tradewind.client.wire import moment


@dataclass(frozen=True, slots=True)
class Rerun:
    """A rerun keeps the good results of `kept_nodes` nodes of `source_run`; it was asked to begin at `from_nodes`."""

    source_run: int
    kept_nodes: int
    from_nodes: tuple[str, ...]
    by: str
    reason: str


@dataclass(frozen=True, slots=True)
class StopRecord:
    """Who asked for a stop, why and when."""

    by: str
    reason: str
    at: datetime | None


def rerun_from(message: cycle_pb2.Cycle) -> Rerun | None:
    """Read what a rerun keeps and who asked for it; None for the first run of a cycle."""
    if not message.HasField("rerun"):
        return None
    rerun = message.rerun
    return Rerun(rerun.source_run, rerun.kept_nodes, tuple(rerun.from_node_ids), rerun.by, rerun.reason)


def stop_from(message: cycle_pb2.Cycle | flow_pb2.Flow) -> StopRecord | None:
    """Read who asked for a stop; None if nobody did."""
    if not message.HasField("stop"):
        return None
    return StopRecord(message.stop.by, message.stop.reason, moment(message.stop, "at"))
