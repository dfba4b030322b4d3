"""Called workers: what is known of each, which replica calls it, and how long it is left alone after a refusal."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

MAX_CANDIDATES = 5
"""How many workers are tried with a node task before it goes back to its queue."""


@dataclass(frozen=True, slots=True)
class CalledWorker:
    """A live worker that is called at `api_url`; a draining one gets nothing more."""

    worker_id: str
    incarnation: str
    api_url: str
    node_types: tuple[str, ...]
    capacity: int
    draining: bool = False


def caller_of(worker_id: str, replicas: Iterable[str]) -> str:
    """Return the replica that calls a worker; when a replica comes or goes, only its share of the workers moves."""
    return max(replicas, key=lambda name: (blake2b(f"{name} {worker_id}".encode(), digest_size=8).digest(), name))


class RefusalBackoff:
    """How long a worker is left alone after a refusal: half a second, doubling with each refusal in a row up to 30 s.

    A worker that refuses for lack of room is left alone for 2 s at most.
    """

    def __init__(self) -> None:
        self.refusals = 0
        """In a row."""

    def accepted(self) -> None:
        """Note that the worker took something."""
        self.refusals = 0

    def refused(self, *, full: bool, requested_s: float = 0.0) -> float:
        """Count a refusal and return how long to leave the worker alone (s); it asked for `requested_s` itself."""
        self.refusals += 1
        pause = min(2.0 if full else 30.0, 0.25 * 2.0 ** min(self.refusals, 10))
        return min(60.0, max(pause, requested_s))
