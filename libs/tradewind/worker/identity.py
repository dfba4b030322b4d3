"""The identity of a worker: its id, the start of its process, what it offers."""

import functools
import importlib.metadata
import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field

from tradewind.api.registry.v1 import worker_pb2
from tradewind.server.identifiers import is_identifier


@dataclass(frozen=True, slots=True)
class Identity:
    """What a worker tells every server about itself. Raises ValueError for an invalid worker id."""

    worker_id: str
    node_types: tuple[str, ...]
    capacity: int
    labels: Mapping[str, str] = field(default_factory=dict)
    api_url: str = ""
    """The address where it is called; empty for a worker that opens a stream."""
    incarnation: str = field(default_factory=lambda: secrets.token_hex(16))
    """New for every start of the process."""

    def __post_init__(self) -> None:
        if not _is_id(self.worker_id):
            raise ValueError(
                f'worker_id "{self.worker_id}" must begin with a letter or digit and have at most 128 letters, digits, '
                "dots, dashes and underscores"
            )

    def record(self, running: int) -> worker_pb2.Worker:
        """Return the worker's record for the registry, with the number of node tasks that it runs."""
        return worker_pb2.Worker(
            worker_id=self.worker_id,
            incarnation=self.incarnation,
            api_url=self.api_url,
            node_types=self.node_types,
            capacity=self.capacity,
            running=running,
            host=socket.gethostname(),
            pid=os.getpid(),
            sdk=_sdk(),
            labels=self.labels,
        )


@functools.cache
def _sdk() -> str:
    return f"tradewind-python/{importlib.metadata.version('tradewind')}"


def labels_of(given: Mapping[str, str] | None) -> dict[str, str]:
    """Return the given labels, or none. Raises TypeError unless they map text to text."""
    if given is not None and not _maps_text(given):
        raise TypeError(f'labels must map names to text, as in {{"zone": "a"}}, not {given!r:.80}')
    return dict(given or {})


def _maps_text(given: object) -> bool:
    return isinstance(given, Mapping) and all(isinstance(text, str) for pair in given.items() for text in pair)


def _is_id(given: object) -> bool:
    return isinstance(given, str) and is_identifier(given)


def default_worker_id() -> str:
    """Return an id made of host, process id and random digits, so that no two processes share it."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", socket.gethostname())[:80].lstrip("._-") or "worker"
    return f"{host}-{os.getpid()}-{secrets.token_hex(3)}"
