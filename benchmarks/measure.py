"""Measuring: results of workloads, percentiles, the CPU time of process trees, facts about the machine.

Uses only the standard library, because the peers import it from an environment of their own; reads Linux's /proc.
"""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.workloads import Workload

_PROC = Path("/proc")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Timing:
    """What a side's client measured: `seconds` from its first call to its last answer, and the seconds of each flow."""

    seconds: float
    flow_seconds: Sequence[float]


@dataclass(frozen=True, slots=True)
class Result:
    """One workload on one side in one round. Latencies are of whole flows, from the client's call to its answer."""

    workload: str
    flows: int
    nodes: int
    hops: int
    seconds: float
    cpu_seconds: float
    latency_p50_ms: float
    latency_p95_ms: float

    @classmethod
    def of(cls, workload: Workload, timing: Timing, cpu_seconds: float) -> Result:
        """Sum up `timing`; `cpu_seconds` is the CPU time of all processes involved over the same span.

        Raises ValueError when `timing` does not hold as many flows as the workload has.
        """
        if len(timing.flow_seconds) != workload.flows:
            raise ValueError(f"{workload.name}: {len(timing.flow_seconds)} flows measured, expected {workload.flows}")
        return cls(
            workload=workload.name,
            flows=workload.flows,
            nodes=workload.nodes,
            hops=workload.hops,
            seconds=timing.seconds,
            cpu_seconds=cpu_seconds,
            latency_p50_ms=percentile(timing.flow_seconds, 50) * 1000,
            latency_p95_ms=percentile(timing.flow_seconds, 95) * 1000,
        )

    @property
    def nodes_per_second(self) -> float:
        return self.nodes / self.seconds

    @property
    def flows_per_second(self) -> float:
        return self.flows / self.seconds

    @property
    def hop_p50_ms(self) -> float:
        """The median flow's time divided by the nodes on its path; beginning and answering the flow are included."""
        return self.latency_p50_ms / self.hops

    @property
    def cpu_seconds_per_1000_nodes(self) -> float:
        return self.cpu_seconds * 1000 / self.nodes


def percentile(values: Sequence[float], percent: float) -> float:
    """The `percent`th percentile (0 to 100) with linear interpolation between neighbours.

    Raises ValueError when there are no values or `percent` is out of range.
    """
    if not values:
        raise ValueError("no values to take a percentile of")
    if not 0 <= percent <= 100:
        raise ValueError(f"percent must be from 0 to 100, got {percent}")
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How one side compares with another over the rounds that both ran: its figure divided by the other's."""

    median: float
    low: float
    high: float
    better: int
    pairs: int

    @classmethod
    def of(cls, ours: Mapping[int, float], theirs: Mapping[int, float], higher_is_better: bool) -> Ratio | None:
        """Compare figures by round; return None when the sides have no round in common."""
        ratios = [ours[round_] / theirs[round_] for round_ in sorted(ours.keys() & theirs.keys())]
        if not ratios:
            return None
        better = sum(ratio > 1 if higher_is_better else ratio < 1 for ratio in ratios)
        return cls(statistics.median(ratios), min(ratios), max(ratios), better, len(ratios))


@dataclass(frozen=True, slots=True)
class ProcessStat:
    """The kernel's figures for a process; `started` (ticks since boot) tells a reused pid from the earlier process."""

    parent: int
    started: int
    cpu_seconds: float

    @classmethod
    def parse(cls, line: str) -> ProcessStat:
        """Read one line of /proc/<pid>/stat, where the command's name may itself contain spaces and brackets."""
        fields = line.rpartition(")")[2].split()
        # The user and system time of the process, then those of the children that it has waited for.
        ticks = sum(int(field) for field in fields[11:15])
        return cls(parent=int(fields[1]), started=int(fields[19]), cpu_seconds=ticks / _TICKS_PER_SECOND)


def process_tree(roots: Iterable[int]) -> dict[int, ProcessStat]:
    """Return the live processes among `roots` and all their descendants, each once."""
    processes = _processes()
    children: dict[int, list[int]] = {}
    for pid, stat in processes.items():
        children.setdefault(stat.parent, []).append(pid)
    tree: dict[int, ProcessStat] = {}
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid in processes and pid not in tree:
            tree[pid] = processes[pid]
            waiting += children.get(pid, [])
    return tree


def cpu_seconds(roots: Iterable[int]) -> float:
    """Return the CPU seconds, user and system, that the trees of `roots` have used so far, ended children included."""
    return sum(stat.cpu_seconds for stat in process_tree(roots).values())


def _processes() -> dict[int, ProcessStat]:
    found: dict[int, ProcessStat] = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = ProcessStat.parse((entry / "stat").read_text())
            except (FileNotFoundError, ProcessLookupError):
                continue  # it ended while we were reading
    return found


def machine_facts() -> dict[str, str]:
    """Return, by name, the facts about the machine that a reader needs to judge absolute figures."""
    memory = next(line for line in (_PROC / "meminfo").read_text().splitlines() if line.startswith("MemTotal:"))
    return {
        "Processor": _processor(),
        "Cores": str(len(os.sched_getaffinity(0))),
        "Memory": f"{int(memory.split()[1]) / 2**20:.1f} GiB",
        "System": f"{platform.system()} {platform.release()} {platform.machine()}",
        "Python": platform.python_version(),
        "Load before": f"{os.getloadavg()[0]:.2f}",
    }


def _processor() -> str:
    for line in (_PROC / "cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
