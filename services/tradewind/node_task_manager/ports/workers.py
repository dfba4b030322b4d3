"""Workers: those with a stream here, those elsewhere, those that are called."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from tradewind.node_task_manager.domain.called import CalledWorker
from tradewind.node_task_manager.domain.eager import NONE, EagerSteps
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import PlanNode
from tradewind.node_task_manager.ports.work import Assignment, Held, Termination


class Ready(msgspec.Struct, frozen=True):
    """An assignment with all that its worker needs: its node of the plan, values by input handle, and the nodes that it
    may go on with by itself."""

    shard: int
    assignment: Assignment
    run: RunName
    node: PlanNode
    inputs: tuple[tuple[str, Sequence[str]], ...]
    eager: EagerSteps = NONE

    @property
    def nonce(self) -> str:
        """What tells this lease from all others."""
        return self.assignment.nonce

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        values = sum(len(value.encode()) for _, group in self.inputs for value in group)
        return 500 + values + len(self.node.config_json) + len(self.assignment.run_inputs) + self.eager.size


class WorkerLine(Protocol):
    """The way out to a connected worker; calls return at once and what they say is sent in order."""

    @property
    def full(self) -> bool:
        """Whether so much waits to be read by the worker that no more work may be given to it."""
        ...

    async def writable(self) -> None:
        """Return as soon as the line is not full, or is closed."""
        ...

    def assign(self, ready: Sequence[Ready]) -> None:
        """Give node tasks."""
        ...

    def terminate(self, shard: int, terminations: Sequence[Termination]) -> None:
        """Ask to stop node tasks."""
        ...

    def lose(self, shard: int, losses: Sequence[tuple[Held, str]], sequence: int | None = None) -> None:
        """Say that attempts hold no lease any more, and why; as the answer to a message, when that is acknowledged."""
        ...

    def expect(self, sequence: int, parts: int, *, awaited: bool = False) -> None:
        """A message of the worker was heard: it has taken effect when its `parts` are acknowledged.

        One that is `awaited` keeps the worker from saying more until it hears so.
        """
        ...

    def acknowledge(self, sequence: int) -> None:
        """A part of a message has taken effect; say so when all of it has, and all before it."""
        ...

    def resync(self) -> None:
        """Ask for held tokens and recent outcomes once more: the store may have lost its last second."""
        ...

    def ping(self, number: int) -> None:
        """Ask for a sign of life."""
        ...

    def close(self, reason: str) -> None:
        """End the stream: a newer one of the same worker is there."""
        ...


class WorkerDirectory(Protocol):
    """Who is registered."""

    async def knows(self, worker_id: str) -> bool:
        """Say whether a worker is registered; True as well when nobody can tell."""
        ...


class CalledWorkerDirectory(Protocol):
    """Which workers want to be called."""

    async def called(self) -> Sequence[CalledWorker] | None:
        """Return those that are alive and have an api_url, in any order; None when nobody can tell."""
        ...


class Answer(msgspec.Struct, frozen=True):
    """What a called worker said to node tasks: nonces of those that it runs, and why it runs none, or "".

    `full`: that was for want of room. `silent`: the connection broke before it said anything, and it may run them.
    """

    accepted: frozenset[str] = frozenset()
    refused: str = ""
    retry_after_s: float = 0.0
    full: bool = False
    silent: bool = False


class WorkerCalls(Protocol):
    """Calls one worker. Nothing here raises, but that nobody may ask of connections once it is closed."""

    async def broken(self) -> None:
        """Return when a connection that stood is lost; none is opened for this."""
        ...

    async def connected(self, within_s: float) -> bool:
        """Open a connection unless there is one; say whether there was within so many seconds."""
        ...

    async def execute(self, ready: Sequence[Ready]) -> Answer:
        """Hand it node tasks, and return what it said within seconds."""
        ...

    async def terminate(self, shard: int, terminations: Sequence[Termination]) -> bool:
        """Ask it to stop node tasks; False when it did not hear."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class Replicas(Protocol):
    """The node task managers over the same store."""

    async def meet(self, name: str, keep_ms: int) -> Sequence[str]:
        """Say that this one is here for so long, and return the names of all that are, itself among them."""
        ...

    async def leave(self, name: str) -> None:
        """Say that this one is not here any more."""
        ...


@dataclass(frozen=True, slots=True)
class Declaration:
    """What workers have declared of a node type: what it cannot run without, and the JSON Schema of its config."""

    required: frozenset[str]
    config_schema: str


class NodeTypes(Protocol):
    """What live workers can do."""

    async def offered(self, node_type: str) -> bool | None:
        """Say whether a live worker offers a node type; None when nobody can tell."""
        ...

    async def hint(self, node_type: str) -> str:
        """Return what to say of the type that is meant instead of one that nobody offers, "" when none is near."""
        ...

    async def declared(self, node_type: str) -> Declaration | None:
        """Return what live workers have declared of a node type; None when none offers it, or nobody can tell."""
        ...
