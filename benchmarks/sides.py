"""The sides of the benchmark: what the driver asks of each, and the peers, which live in processes of their own."""

from __future__ import annotations

import contextlib
import importlib
import json
import selectors
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Protocol, TextIO

from benchmarks import processes
from benchmarks.measure import Result
from benchmarks.store import Store
from benchmarks.workloads import FLOW_TIMEOUT_S, Workload

TRADEWIND = "tradewind"
PEERS = {"celery": ("benchmarks.peers.celery_bench", 2), "docket": ("benchmarks.peers.docket_bench", 1)}
"""The module of each peer, and the most stores that it can use."""
TITLES = {TRADEWIND: "Tradewind", "celery": "Celery", "docket": "pydocket"}

PEER_PYTHON = processes.ROOT / ".venv-bench" / "bin" / "python"
_READY_WITHIN_S = 60.0
_GRACE_S = 15.0
_LOG_LINES = 20


class SideFailed(RuntimeError):
    """A side could not start, broke off, gave a wrong answer or took too long; the message says which."""


class Side(Protocol):
    """A system under test, with stores, workers and a client of its own; used for one round, then thrown away."""

    name: str

    def start(self) -> Mapping[str, str]:
        """Start everything over empty stores and, once work is accepted, return the versions of its parts by name.

        Raises SideFailed; `stop` then ends whatever had started.
        """

    def run(self, workload: Workload) -> Result:
        """Run the warm-up flows, then the workload; check every flow's answer (`Workload.check`), and measure.

        The CPU time is that of all processes involved: client, services, workers, stores. Raises SideFailed.
        """

    def stop(self) -> None:
        """End every process and remove the data; a second call does nothing."""


def create(name: str, stores: int = 1) -> Side:
    """Return the side of this name, not started, over so many stores or as many as it can use.

    Tradewind's own is in a module that is imported only here.

    Raises SideFailed when the side does not exist or its environment is missing.
    """
    if name in PEERS:
        if not PEER_PYTHON.exists():
            raise SideFailed(
                "the peers' environment .venv-bench is missing; make it: "
                "python3 -m venv .venv-bench && .venv-bench/bin/pip install -r benchmarks/requirements.txt"
            )
        peer, most = PEERS[name]
        return PeerSide(name, peer, min(stores, most))
    if name != TRADEWIND:
        raise SideFailed(f"no side {name!r}; there are {', '.join(TITLES)}")
    try:
        module = importlib.import_module("benchmarks.tradewind_side")
    except ModuleNotFoundError as error:
        raise SideFailed(
            f"Tradewind's side cannot be loaded ({error}); run the peers alone with --sides celery,docket"
        ) from error
    side: Side = module.TradewindSide(capacity=400, stores=stores)
    return side


class PeerSide:
    """A peer; the driver talks to it in lines of JSON (see peers/session.py)."""

    def __init__(self, name: str, module: str, stores: int) -> None:
        self.name = name
        self._module = module
        self._store_count = stores
        self._stack = contextlib.ExitStack()
        self._process: subprocess.Popen[str] | None = None
        self._log: TextIO | None = None

    def start(self) -> Mapping[str, str]:
        stores = [self._stack.enter_context(Store()) for _ in range(self._store_count)]
        arguments = [part for store in stores for part in ("--store-url", store.url, "--store-pid", str(store.pid))]
        self._log = log = self._stack.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115
        self._process = processes.spawn(
            [str(PEER_PYTHON), "-m", self._module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
        versions: dict[str, str] = self._answer(_READY_WITHIN_S, "to start")["versions"]
        return {**versions, "store": stores[0].version}

    def run(self, workload: Workload) -> Result:
        assert self._process is not None, "start comes first"
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(asdict(workload)) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failed("ended") from None
        # Twice the time of a workload: the warm-up may take as long, and the peer reports its own timeout.
        return Result(**self._answer(2 * FLOW_TIMEOUT_S + _GRACE_S, f"to run {workload.name}"))

    def stop(self) -> None:
        if self._process is not None:
            # The end of stdin tells a peer to end its workers and itself.
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_S)
            processes.end(self._process)
            self._process = None
        self._stack.close()

    def _answer(self, within_s: float, what: str) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            # At most one line is under way at any time, so nothing hides in the reader's buffer.
            if not selector.select(within_s):
                raise self._failed(f"took longer than {within_s:.0f} s {what}")
        line = self._process.stdout.readline()
        if not line:
            raise self._failed(f"ended when it was asked {what}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failed(self, what: str) -> SideFailed:
        assert self._log is not None
        self._log.seek(0)
        lines = self._log.read().splitlines()[-_LOG_LINES:]
        return SideFailed("\n".join([f"{self.name} {what}; its last lines:", *(f"    {line}" for line in lines)]))
