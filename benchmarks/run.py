"""The driver: runs the sides in turn, round by round, and publishes the results.

    python -m benchmarks.run                                          the full run, publishes
    python -m benchmarks.run --sides celery,docket --rounds 1         peers alone, prints only
    python -m benchmarks.run --workloads chain-1,fan-10 --scale 0.1   a quick look, prints only

A full run (all sides, all workloads, scale 1) writes docs/benchmarks.md and benchmarks/results/latest.json.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from benchmarks import report, sides
from benchmarks.measure import machine_facts
from benchmarks.processes import ROOT
from benchmarks.store import SETTINGS
from benchmarks.workloads import WORKLOADS, Workload

PAGE = ROOT / "docs" / "benchmarks.md"
RAW = ROOT / "benchmarks" / "results" / "latest.json"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run as the command line says; return 0 when everything ran, 1 when a side failed."""
    options = _parse(arguments)
    # Let a SIGTERM unwind like Ctrl-C, so that the running side is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    machine = machine_facts()
    versions: dict[str, dict[str, str]] = {}
    samples: list[report.Sample] = []
    try:
        for round_ in range(1, options.rounds + 1):
            for name in options.sides:
                versions[name] = _turn(round_, name, options.stores, options.workloads, samples)
    except sides.SideFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    command = " ".join(["python -m benchmarks.run", *(sys.argv[1:] if arguments is None else arguments)])
    finished = report.Report(started, command, options.rounds, options.sides, machine, versions, SETTINGS, samples)
    print(f"\n{finished.table()}")
    if options.publish:
        _publish(finished)
    return 0


def _turn(
    round_: int, name: str, stores: int, workloads: Sequence[Workload], samples: list[report.Sample]
) -> dict[str, str]:
    """Run one side's turn in one round: every workload on a fresh stack and store; return the versions that it ran."""
    side = sides.create(name, stores)
    try:
        versions = dict(side.start())
        for workload in workloads:
            sample = report.Sample(round_, name, side.run(workload))
            samples.append(sample)
            print(report.progress(sample), flush=True)
        return versions
    finally:
        side.stop()


def _publish(finished: report.Report) -> None:
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else None
    text = report.replace_figures(page, finished.markdown())
    for path, content in ((PAGE, text), (RAW, json.dumps(finished.raw(), indent=1) + "\n")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT)}")


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description="Tradewind beside its peers.")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each side (default 5)")
    parser.add_argument("--sides", default=",".join(sides.TITLES), help="in turn, of %(default)s (default all)")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="of %(default)s (default all)")
    parser.add_argument(
        "--stores", type=int, choices=(1, 2), default=1, help="of each side that can use so many (default %(default)s)"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of flows (default 1)")
    parser.add_argument(
        "--publish",
        action=argparse.BooleanOptionalAction,
        help=f"write {PAGE.relative_to(ROOT)} and {RAW.relative_to(ROOT)} (default: only after a full run)",
    )
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.scale <= 0:
        parser.error("--rounds must be 1 or more, --scale above 0")
    options.sides = _names(parser, "side", options.sides, sides.TITLES)
    workloads = _names(parser, "workload", options.workloads, WORKLOADS)
    if options.publish is None:
        full = set(options.sides) == set(sides.TITLES) and set(workloads) == set(WORKLOADS)
        options.publish = full and options.scale == 1 and options.stores == 1
    elif options.publish and options.stores != 1:
        parser.error("--publish is for one store for each side")
    options.workloads = [WORKLOADS[name].scaled(options.scale) for name in workloads]
    return options


def _names(parser: argparse.ArgumentParser, what: str, text: str, known: Mapping[str, object]) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            parser.error(f"no {what} {name!r}; there are {', '.join(known)}")
    return names


if __name__ == "__main__":
    sys.exit(main())
