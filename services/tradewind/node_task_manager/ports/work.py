"""What passes between the store and its workers: vacancies, assignments, outcomes, effects.

Nothing that is made for each node task, here and in the modules beside this one, refers back to itself, so the garbage
collector need not look at it.
"""

from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from tradewind.node_task_manager.domain.fan_out import FanOutOffer
from tradewind.node_task_manager.domain.node_task import StopMark, TaskError
from tradewind.node_task_manager.domain.retry import RetryRequest
from tradewind.node_task_manager.domain.waiting import Resumption, Wait
from tradewind.node_task_manager.ports.events import NewEvent


class Vacancy(msgspec.Struct, frozen=True, gc=False):
    """A worker that can take `credits` more node tasks. `session` 0 stands for a worker without a stream.

    Of several vacancies, the one with the greatest part of its `capacity` free gets a node task.
    """

    worker_id: str
    session: int
    credits: int
    node_types: tuple[str, ...]
    capacity: int = 1


def by_kind(vacancies: Iterable[Vacancy]) -> dict[tuple[str, ...], list[Vacancy]]:
    """Return vacancies by the node types that they offer, which many have in common."""
    kinds: dict[tuple[str, ...], list[Vacancy]] = {}
    for each in vacancies:
        kinds.setdefault(each.node_types, []).append(each)
    return kinds


class _OfAttempt:
    """A message about one attempt."""

    __slots__ = ()
    task_id: str
    attempt: int
    nonce: str

    @property
    def held(self) -> "Held":
        """The attempt's token, as the worker names it."""
        return Held(self.task_id, self.attempt, self.nonce)


class Assignment(_OfAttempt, msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node task leased to a worker; times in epoch ms, 0 for none. It was ready for `waited_ms`.

    `inputs` pairs the place of a live edge with its value. Values that are ELSEWHERE are read outside
    the claim; if there are too many values, all are (`inputs_outside`). One that was `sent_before` was refused by other
    workers, or is not named by its own.
    """

    worker_id: str
    task_id: str
    nonce: str
    attempt: int
    component_id: str
    plan: str
    index: int
    run_id: str
    user_id: str
    planned_ms: int = 0
    deadline_ms: int = 0
    waited_ms: int = 0
    inputs: tuple[tuple[int, str], ...] = ()
    inputs_outside: bool = False
    run_inputs: str = ""
    traceparent: str = ""
    resumed: Resumption | None = None
    sent_before: bool = False


class Termination(_OfAttempt, msgspec.Struct, frozen=True, gc=False):
    """A running node task that its worker is to stop."""

    worker_id: str
    task_id: str
    attempt: int
    nonce: str
    stop: StopMark


class OutcomeKind(StrEnum):
    """How an attempt ended, as its worker reports it; or that an attempt which began eagerly goes on."""

    COMPLETED = "completed"
    FAILED = "failed"
    TERMINATED = "terminated"
    SUSPENDED = "suspended"
    BEGUN = "begun"


class Outcome(_OfAttempt, msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The end of an attempt; `outputs` pairs emitted handles with JSON text, `cache` names the cache they come from.

    A suspended attempt says in `wait` what it waits for. An `eager` attempt, the first of its node task, was given to
    nobody: the worker that `eager` names began it by itself, under a nonce of its own making, with the outputs of the
    outcome right before it. It counts only if that outcome does. An error that is `unreported`, because this server and
    no worker found it, becomes a line of the log.
    """

    task_id: str
    attempt: int
    nonce: str
    kind: OutcomeKind
    outputs: tuple[tuple[str, str], ...] = ()
    error: TaskError | None = None
    retry_request: RetryRequest | None = None
    cache: str = ""
    wait: Wait | None = None
    eager: str = ""
    unreported: bool = False


def in_pieces(outcomes: Sequence[Outcome], most: int) -> Iterator[Sequence[Outcome]]:
    """Cut outcomes into pieces of at most `most`; eager ones stay with those before them, even beyond that."""
    first = 0
    while len(outcomes) - first > most:
        cut = first + most
        while cut < len(outcomes) and outcomes[cut].eager:
            cut += 1
        yield outcomes[first:cut]
        first = cut
    if first < len(outcomes) or not outcomes:
        yield outcomes[first:]


class Held(msgspec.Struct, frozen=True, gc=False):
    """A token as its holder names it."""

    task_id: str
    attempt: int
    nonce: str


class Postponed(msgspec.Struct, frozen=True, gc=False):
    """An attempt that never reached its worker, to be made again in `wait_ms`."""

    task_id: str
    nonce: str
    wait_ms: int


class Effects(msgspec.Struct, frozen=True):
    """What a change brought about beyond its own answer.

    `events` are for the scheduler, in order within each partition; `ready_types` have node tasks that no vacancy of the
    caller could take; `todo` counts pieces of work that are left for later scripts. `due_in` is the time in ms until
    the earliest delayed node task is due, -1 when there are none or nobody checked. The caller carries out `fan_outs`,
    with `fan_out`. `lost` counts attempts taken back because their worker was lost. `late`: see `reap`.
    """

    assignments: tuple[Assignment, ...] = ()
    terminations: tuple[Termination, ...] = ()
    events: tuple[NewEvent, ...] = ()
    ready_types: tuple[str, ...] = ()
    stale_workers: tuple[str, ...] = ()
    todo: int = 0
    results: tuple[str, ...] = ()
    due_in: int = -1
    fan_outs: tuple[FanOutOffer, ...] = ()
    lost: int = 0
    late: bool = False
