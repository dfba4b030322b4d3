"""A peer's end of the dialogue with the driver: workloads come in on stdin, results go out on stdout, as JSON lines.

The first line out is `{"versions": {...}}`, once the peer's workers are ready. The process ends when stdin does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import Protocol

from benchmarks.measure import Result, Timing, cpu_seconds
from benchmarks.workloads import Shape, Workload


class Peer(Protocol):
    """A peer with its client and its workers running."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Versions of its parts, by name."""

    def run(self, workload: Workload) -> Timing:
        """Run the flows, check each one's answer, and return the times.

        Raises TimeoutError after `FLOW_TIMEOUT_S`, ValueError for a wrong answer.
        """


def serve(start: Callable[[Sequence[str]], AbstractContextManager[Peer]]) -> None:
    """Start a peer over the stores named on the command line and run workloads until stdin ends.

    The CPU time in a result covers this process, its workers and the stores.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--store-url", required=True, action="append")
    parser.add_argument("--store-pid", required=True, action="append", type=int)
    arguments = parser.parse_args()
    processes = [os.getpid(), *arguments.store_pid]
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    # Output that the peer or its workers print must not get in between the answers.
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # When the driver dies, a SIGTERM comes: unwind, so that workers end, even those that wait for their store.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with contextlib.suppress(KeyboardInterrupt), start(arguments.store_url) as peer:
        print(json.dumps({"versions": dict(peer.versions)}), file=answers, flush=True)
        for line in sys.stdin:
            fields = json.loads(line)
            workload = Workload(**{**fields, "shape": Shape(fields["shape"])})
            if workload.warm_up:
                peer.run(workload.warming())
            before = cpu_seconds(processes)
            timing = peer.run(workload)
            used = cpu_seconds(processes) - before
            print(json.dumps(asdict(Result.of(workload, timing, used))), file=answers, flush=True)
