"""Workers: with a stream here, with one elsewhere, or called."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from tradewind.node_task_manager.domain.called import CalledWorker
from tradewind.node_task_manager.domain.eager import NONE, EagerSteps
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import PlanNode
from tradewind.node_task_manager.ports.work import Assignment, Held, Termination
from tradewind.server.sizes import size_of

_FRAME = 5
"""Bytes that a message takes for each text in it, beside the text."""


class Ready(msgspec.Struct, frozen=True, gc=False):
    """An assignment with all that its worker needs: the node of the plan, values by input handle, and the nodes that
    the worker may go on with by itself."""

    shard: int
    assignment: Assignment
    run: RunName
    node: PlanNode
    inputs: tuple[tuple[str, Sequence[str]], ...]
    eager: EagerSteps = NONE

    @property
    def nonce(self) -> str:
        """The nonce, which tells this lease from all others."""
        return self.assignment.nonce

    @property
    def size(self) -> int:
        """Its approximate size in bytes; the names in its id are sent three times."""
        given = self.assignment
        size = 500 + 3 * len(given.task_id) + self.eager.size
        size += size_of(given.run_inputs) + size_of(self.node.config_json)
        if given.resumed is not None:
            size += size_of(given.resumed.payload) + size_of(given.resumed.signal) + size_of(given.resumed.by)
        for handle, group in self.inputs:
            size += _FRAME + size_of(handle) + _FRAME * len(group)
            for value in group:
                size += size_of(value)
        return size


class WorkerLine(Protocol):
    """The way out to a connected worker; calls return at once, and their messages are sent in order."""

    @property
    def full(self) -> bool:
        """Whether too much waits for the worker to read it; no more work may be given to it then."""
        ...

    async def writable(self) -> None:
        """Return as soon as the line is not full, or is closed."""
        ...

    def assign(self, ready: Sequence[Ready]) -> None:
        """Give the worker node tasks."""
        ...

    def terminate(self, shard: int, terminations: Sequence[Termination]) -> None:
        """Ask the worker to stop node tasks."""
        ...

    def report_losses(self, shard: int, losses: Sequence[tuple[Held, str]], sequence: int | None = None) -> None:
        """Say that attempts hold no lease any more, and why; with `sequence`, when that message is acknowledged."""
        ...

    def expect(self, sequence: int, parts: int, *, awaited: bool = False) -> None:
        """Note that a message of the worker has arrived: it has taken effect when all its `parts` are acknowledged.

        After an `awaited` message, the worker says nothing more until it is acknowledged.
        """
        ...

    def acknowledge(self, sequence: int) -> None:
        """Note that a part of a message has taken effect; say so once all of it has, and all messages before it."""
        ...

    def resync(self) -> None:
        """Ask for held tokens and recent outcomes again: the store may have lost its last second."""
        ...

    def ping(self, number: int) -> None:
        """Ask for a sign of life."""
        ...

    def close(self, reason: str) -> None:
        """End the stream: the same worker has a newer one."""
        ...


class WorkerDirectory(Protocol):
    """Says which workers are registered."""

    async def knows(self, worker_id: str) -> bool:
        """Say whether a worker is registered; True also when nobody can tell."""
        ...


class CalledWorkerDirectory(Protocol):
    """Says which workers want to be called."""

    async def called(self) -> Sequence[CalledWorker] | None:
        """Return the live workers that have an api_url, in any order; None when nobody can tell."""
        ...


class Answer(msgspec.Struct, frozen=True):
    """A called worker's answer to node tasks: the nonces of those it runs, and why it runs none, or "".

    `full`: it runs none for lack of room. `silent`: the connection broke before it answered, and it may run them.
    """

    accepted: frozenset[str] = frozenset()
    refused: str = ""
    retry_after_s: float = 0.0
    full: bool = False
    silent: bool = False


class WorkerCalls(Protocol):
    """Calls one worker. Nothing here raises, except questions about connections after `close`."""

    async def broken(self) -> None:
        """Return when an existing connection is lost; no connection is opened for this."""
        ...

    async def connected(self, within_s: float) -> bool:
        """Open a connection unless there is one; say whether there was one within `within_s`."""
        ...

    async def execute(self, ready: Sequence[Ready]) -> Answer:
        """Hand node tasks to the worker, and return its answer within 7.2 s."""
        ...

    async def terminate(self, shard: int, terminations: Sequence[Termination]) -> bool:
        """Ask the worker to stop node tasks; False when the call did not reach it."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class Replicas(Protocol):
    """The node task managers over the same store."""

    async def check_in(self, name: str, keep_ms: int) -> Sequence[str]:
        """Say that replica `name` is here for `keep_ms`, and return the names of all that are, `name` among them."""
        ...

    async def leave(self, name: str) -> None:
        """Say that replica `name` is leaving."""
        ...


@dataclass(frozen=True, slots=True)
class Declaration:
    """What workers have declared of a node type: the parameters it requires, and the JSON Schema of its config."""

    required: frozenset[str]
    config_schema: str


class NodeTypes(Protocol):
    """What live workers can do."""

    async def offered(self, node_type: str) -> bool | None:
        """Say whether a live worker offers a node type; None when nobody can tell."""
        ...

    async def hint(self, node_type: str) -> str:
        """Return a hint at the type that may be meant instead of one that nobody offers, "" when none is near."""
        ...

    async def declared(self, node_type: str) -> Declaration | None:
        """Return what live workers have declared of a node type; None when none offers it, or nobody can tell."""
        ...
