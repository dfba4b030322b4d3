"""Workers: what a worker reports about itself, and what the registry records."""

from dataclasses import dataclass
from enum import StrEnum


class WorkerStatus(StrEnum):
    """The status of a worker; offline is never stored but follows from the time of the last heartbeat."""

    ACTIVE = "active"
    DRAINING = "draining"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker process as it describes itself.

    `incarnation` is new for every start of the process. `api_url` is empty for a worker that opens a stream. `capacity`
    and `running` count node tasks at once. `labels` are sorted pairs.
    """

    worker_id: str
    incarnation: str
    capacity: int
    running: int = 0
    api_url: str = ""
    node_types: tuple[str, ...] = ()
    host: str = ""
    pid: int = 0
    sdk: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def load(self) -> float:
        """How busy the worker is: 0 is idle, 1 is full."""
        return self.running / self.capacity


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker on record; times in epoch ms. `alive` is as of the moment it was read."""

    worker: Worker
    registered_at: int
    last_heartbeat: int
    draining: bool
    alive: bool

    @property
    def status(self) -> WorkerStatus:
        """The status; a worker that is not alive is offline, even if it was draining."""
        if not self.alive:
            return WorkerStatus.OFFLINE
        return WorkerStatus.DRAINING if self.draining else WorkerStatus.ACTIVE


@dataclass(frozen=True, slots=True)
class HeartbeatAnswer:
    """The answer to a heartbeat."""

    register_again: bool = False
    drain: bool = False
