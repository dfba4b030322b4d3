"""Workers that are called: what is known of one, which replica calls it, how long one that refused is left alone."""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b

MOST_CANDIDATES = 5
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
    """Return which of the replicas calls a worker: with each replica that comes or goes, only its share moves."""
    return max(replicas, key=lambda name: (blake2b(f"{name} {worker_id}".encode(), digest_size=8).digest(), name))


class Patience:
    """How long a worker that refused is left alone: from half a second, doubling with each refusal in a row to 30 s.

    A worker without room says so by the way, and is left alone for 2 s at most.
    """

    def __init__(self) -> None:
        self.refusals = 0
        """In a row."""

    def accepted(self) -> None:
        """It took something."""
        self.refusals = 0

    def refused(self, *, full: bool, asked_s: float = 0.0) -> float:
        """Count a refusal, and return for how many seconds to leave it alone; `asked_s` is what it asked for itself."""
        self.refusals += 1
        pause = min(2.0 if full else 30.0, 0.25 * 2.0 ** min(self.refusals, 10))
        return min(60.0, max(pause, asked_s))
