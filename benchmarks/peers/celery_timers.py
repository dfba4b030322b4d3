"""Tasks of Celery with an ETA, all due at one instant.

    python -m benchmarks.peers.celery_timers COUNT PLANNED

Runs COUNT tasks at the second PLANNED since the epoch; ends when all have run, or half a minute after that instant.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from benchmarks import processes, stamps
from benchmarks.peers.celery_app import WORKER_OPTIONS, app

_PATIENCE_S = 30.0


def _stamp(planned: float) -> None:
    stamps.stamp(planned)


stamp = app.task(name="stamp", ignore_result=True)(_stamp)


def main(count: int, planned: float) -> None:
    """Run."""
    worker = processes.spawn(
        [sys.executable, "-m", "celery", "-A", "benchmarks.peers.celery_timers", "worker", *WORKER_OPTIONS]
    )
    try:
        for _ in range(count):
            stamp.apply_async((planned,), eta=datetime.fromtimestamp(planned, UTC))
        file = Path(os.environ[stamps.FILE])
        while len(stamps.read(file)) < count and time.time() < planned + _PATIENCE_S:
            time.sleep(0.2)
    finally:
        processes.end(worker)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
