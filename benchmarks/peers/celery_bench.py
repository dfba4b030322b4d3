"""The workloads on Celery: chains and chords over one worker (prefork, two processes), Redis as broker and backend.

The client is one thread that reacts to results as the backend publishes them (`AsyncResult.then`): Celery's fastest way
to keep several flows in flight.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import metadata
from typing import Any

import celery

from benchmarks import processes
from benchmarks.measure import Timing
from benchmarks.peers import celery_app, session
from benchmarks.workloads import CHAIN_LENGTH, FAN_WIDTH, FLOW_TIMEOUT_S, Shape, Workload

_START = Workload("start", Shape.SINGLE, flows=20, in_flight=20, warm_up=0)
_QUIET_S = 1.0


class CeleryPeer:
    """Celery's client."""

    versions: Mapping[str, str] = {
        "Celery": metadata.version("celery"),
        "kombu": metadata.version("kombu"),
        "redis-py": metadata.version("redis"),
    }

    def run(self, workload: Workload) -> Timing:
        run = _Run(workload)
        run.drive()
        return run.timing()


class _Run:
    """One run of a workload: as flows end, others are begun, so that `in_flight` flows are always under way."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._open: dict[str, tuple[float, Any]] = {}
        self._flow_seconds: list[float] = []
        self._failure: str | None = None
        self._begun = 0
        self._started = self._ended = 0.0

    def drive(self) -> None:
        """Run all flows; raises like `session.Peer.run`."""
        workload, drain = self._workload, celery_app.app.backend.result_consumer.drain_events
        self._started = quiet_since = time.perf_counter()
        deadline = self._started + FLOW_TIMEOUT_S
        while len(self._flow_seconds) < workload.flows:
            if workload.bulk and not self._begun:
                self._begin_all()
            while self._begun < workload.flows and len(self._open) < workload.in_flight:
                self._begin()
            finished = len(self._flow_seconds)
            drain(timeout=_QUIET_S)
            now = time.perf_counter()
            if len(self._flow_seconds) > finished:
                quiet_since = now
            elif now - quiet_since > _QUIET_S:
                self._look()
                quiet_since = now
            if self._failure:
                raise ValueError(self._failure)
            if now > deadline:
                raise TimeoutError(
                    f"{workload.name}: {finished} of {workload.flows} flows after {FLOW_TIMEOUT_S:.0f} s"
                )

    def timing(self) -> Timing:
        return Timing(self._ended - self._started, self._flow_seconds)

    def _begin(self) -> None:
        began = time.perf_counter()
        self._await(signature(self._workload.shape).apply_async(), began)

    def _begin_all(self) -> None:
        began = time.perf_counter()
        flows = celery.group(signature(self._workload.shape) for _ in range(self._workload.flows))
        for result in flows.apply_async().results:
            self._await(result, began)

    def _await(self, result: Any, began: float) -> None:
        self._begun += 1
        self._open[result.id] = (began, result)
        result.then(self._finish, on_error=self._finish)

    def _finish(self, result: Any) -> None:
        if result.id not in self._open:
            return  # seen already, by `_look`
        began, _ = self._open.pop(result.id)
        self._ended = time.perf_counter()
        self._flow_seconds.append(self._ended - began)
        try:
            self._workload.check(result.get(timeout=0)["n"])
        except Exception as error:  # raised later, by `drive`: Celery's consumer would only log what a callback raises
            self._failure = str(error)

    def _look(self) -> None:
        # The result of a flow that ended before the subscription to it is never published to us, so ask for it.
        for _, result in list(self._open.values()):
            result.ready()


def signature(shape: Shape) -> Any:
    """Return one flow of `shape` as a Celery signature."""
    increment, join = celery_app.increment, celery_app.join
    match shape:
        case Shape.CHAIN:
            return celery.chain(increment.s({"n": 0}), *(increment.s() for _ in range(CHAIN_LENGTH - 1)))
        case Shape.FAN:
            return celery.chain(increment.s({"n": 0}), celery.group(increment.s() for _ in range(FAN_WIDTH)), join.s())
        case Shape.SINGLE:
            return increment.s({"n": 0})


@contextmanager
def start(store_urls: Sequence[str]) -> Iterator[CeleryPeer]:
    """Start Celery's client, and its worker in a process of its own that has run tasks; both end with the context.

    The first store is the broker, the last keeps the results.
    """
    broker, backend = store_urls[0], store_urls[-1]
    celery_app.app.conf.update(broker_url=broker, result_backend=backend)
    worker = processes.spawn(
        [sys.executable, "-m", "celery", "-A", celery_app.__name__, "worker", *celery_app.WORKER_OPTIONS],
        stdout=sys.stderr.fileno(),
        environment={celery_app.BROKER: broker, celery_app.BACKEND: backend, "PYTHONWARNINGS": "ignore"},
    )
    try:
        peer = CeleryPeer()
        peer.run(_START)
        yield peer
    finally:
        processes.end(worker)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    session.serve(start)
