"""The names of the figures, how they compare, and the table, page and raw file made of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.measure import Ratio, Result
from benchmarks.sides import TITLES, TRADEWIND

BEGIN = "<!-- figures: begin, written by `python -m benchmarks.run` -->"
END = "<!-- figures: end -->"

_NEW_PAGE = f"""# Benchmarks

The same workloads on Tradewind and on its peers, run alternately on one machine: compare the ratios, not the figures.

{BEGIN}
{END}
"""

_LEGEND = """\
A figure is the median of the rounds. A ratio is Tradewind's figure divided by the peer's: the median of the rounds'
ratios, from the lowest to the highest, and in how many rounds Tradewind was the better one."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the table: a figure of one workload."""

    workload: str
    label: str
    unit: str
    of: Callable[[Result], float]
    higher_is_better: bool


MEASURES = (
    Measure("chain-1", "time per hop, p50", "ms", lambda result: result.hop_p50_ms, False),
    Measure("chain-1-eager", "time per hop, p50", "ms", lambda result: result.hop_p50_ms, False),
    Measure("chain-50", "nodes per second", "/s", lambda result: result.nodes_per_second, True),
    Measure("chain-50", "CPU per 1000 nodes", "s", lambda result: result.cpu_seconds_per_1000_nodes, False),
    Measure("chain-50-eager", "nodes per second", "/s", lambda result: result.nodes_per_second, True),
    Measure("fan-1", "nodes per second", "/s", lambda result: result.nodes_per_second, True),
    Measure("fan-10", "nodes per second", "/s", lambda result: result.nodes_per_second, True),
    Measure("single-1000", "flows per second, a call each", "/s", lambda result: result.flows_per_second, True),
    Measure("single-1000-bulk", "flows per second, one bulk call", "/s", lambda result: result.flows_per_second, True),
    Measure("single-1000-bulk-one-flow", "the same, of one flow", "/s", lambda result: result.flows_per_second, True),
)


@dataclass(frozen=True, slots=True)
class Sample:
    """The result of one side with one workload in one round (from 1)."""

    round: int
    side: str
    result: Result


@dataclass(frozen=True, slots=True)
class Report:
    """All results of one run of the driver."""

    started: str
    command: str
    rounds: int
    sides: Sequence[str]
    machine: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]]
    store_settings: str
    samples: Sequence[Sample]

    def raw(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self)

    def table(self) -> str:
        """Return the medians and ratios as a Markdown table; a ratio is the median over the rounds, with its range."""
        peers = [side for side in self.sides if side != TRADEWIND] if TRADEWIND in self.sides else []
        head = [
            "workload",
            "figure",
            *(TITLES[side] for side in self.sides),
            *(f"beside {TITLES[side]}" for side in peers),
        ]
        rows = [head, ["---", "---", *("---:" for _ in head[2:])]]
        for measure in MEASURES:
            figures = {side: self._by_round(measure, side) for side in self.sides}
            if any(figures.values()):
                ours = figures.get(TRADEWIND, {})
                ratios = [Ratio.of(ours, figures[peer], measure.higher_is_better) for peer in peers]
                medians = [_median_cell(figures[side], measure.unit) for side in self.sides]
                rows.append([measure.workload, measure.label, *medians, *map(_ratio_cell, ratios)])
        return "\n".join(f"| {' | '.join(row)} |" for row in rows)

    def markdown(self) -> str:
        """Return the part of the page between the markers."""
        facts = [f"- {name}: {value}" for name, value in self.machine.items()]
        versions = [
            f"- {TITLES[side]}: {', '.join(f'{name} {version}' for name, version in self.versions[side].items())}"
            for side in self.sides
        ]
        rounds = "one round" if self.rounds == 1 else f"{self.rounds} rounds"
        return "\n".join(
            [
                f"{self.started}, {rounds}, each side in turn: `{self.command}`",
                "",
                self.table(),
                "",
                _LEGEND,
                "",
                *facts,
                f"- Store, one for each side, new in each round: {self.store_settings}",
                *versions,
            ]
        )

    def _by_round(self, measure: Measure, side: str) -> dict[int, float]:
        return {
            sample.round: measure.of(sample.result)
            for sample in self.samples
            if sample.side == side and sample.result.workload == measure.workload
        }


def progress(sample: Sample) -> str:
    """Return one line for one sample, for a person who waits."""
    result = sample.result
    figures = [
        f"{measure.of(result):.4g} {measure.unit} ({measure.label})"
        for measure in MEASURES
        if measure.workload == result.workload
    ]
    latency = f"flow p50 {result.latency_p50_ms:.1f} ms, p95 {result.latency_p95_ms:.1f} ms"
    return f"round {sample.round}  {sample.side:<10}{result.workload:<18}{', '.join(figures)}; {latency}"


def replace_figures(page: str | None, figures: str) -> str:
    """Return `page` with the text between its markers replaced by `figures`, or a new page when there is none.

    Raises ValueError unless the page has exactly one pair of markers, in order: nothing hand-written is overwritten.
    """
    page = _NEW_PAGE if page is None else page
    before, began, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not began or not ended or BEGIN in rest or END in before + after:
        raise ValueError(f"the page needs the lines {BEGIN!r} and {END!r} once each, in this order; put them back")
    return f"{before}{BEGIN}\n\n{figures}\n\n{END}{after}"


def _median_cell(figures: Mapping[int, float], unit: str) -> str:
    if not figures:
        return "-"
    median = statistics.median(figures.values())
    digits = 0 if median >= 100 else 1 if median >= 10 else 2
    return f"{median:.{digits}f}{'' if unit.startswith('/') else ' '}{unit}"


def _ratio_cell(ratio: Ratio | None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio.median:.2f} x ({ratio.low:.2f} to {ratio.high:.2f}; better in {ratio.better} of {ratio.pairs})"
