"""Changing node tasks, and what comes of it; and reading them."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tradewind.node_task_manager.domain.component import Release, RunSubmission, SubmitResult
from tradewind.node_task_manager.domain.fan_out import FanOutStep
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.sub_flow import SubFlowReport
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.domain.waiting import Signal
from tradewind.node_task_manager.ports.reading import Line, Progress
from tradewind.node_task_manager.ports.work import Effects, Held, Outcome, Postponed, Vacancy


class Session(msgspec.Struct, frozen=True):
    """A worker's new session, the nonces of named tokens that hold no lease, and what followed."""

    session: int
    lost: tuple[str, ...]
    effects: Effects


class Renewal(msgspec.Struct, frozen=True):
    """What became of named leases: `lost` pairs nonces with the reason; assignments in `effects` are sent again."""

    session_current: bool
    lost: tuple[tuple[str, str], ...]
    lease_deadline: int
    effects: Effects


class Submitted(msgspec.Struct, frozen=True):
    """Answers to submissions in their order, and what followed."""

    results: tuple[SubmitResult, ...]
    effects: Effects


class Purge(msgspec.Struct, frozen=True):
    """How far the removal of a flow is."""

    removed: int
    done: bool
    effects: Effects


class Cleaned(msgspec.Struct, frozen=True):
    """What a step of cleaning did: `leads` is whether it was the caller's to do, `waits` that lapsed leases come first.

    `keys` counts what was looked at; `runs`, `node_tasks` and `entries` of indexes what was removed. The next step goes
    on at `place` of the list of all node tasks, None when that is through; there is `more` for it to do at once.
    """

    leads: bool
    waits: bool = False
    keys: int = 0
    runs: int = 0
    node_tasks: int = 0
    entries: int = 0
    place: int | None = None
    more: bool = False


class NodeTaskStore(Protocol):
    """Node tasks of one shard, and all that changes them."""

    async def submit(self, runs: Sequence[RunSubmission], vacancies: Sequence[Vacancy] = ()) -> Submitted:
        """Create runs. One that stands already is `duplicate`, another under its name `run_conflict`, one with plans
        that were not saved `plan_unknown`, one begun before its flow was purged `flow_purged`; none of these changes
        anything. A run with a stop mark begins stopped."""
        ...

    async def complete(self, outcomes: Sequence[Outcome], vacancies: Sequence[Vacancy] = ()) -> Effects:
        """End attempts that hold their lease; an outcome that took effect before is fine. `results` holds for each
        "" or why it was refused; a refused one changes nothing. Signals are delivered and successors released or
        skipped, transitively. One that is suspended holds no lease and no slot; when its wait ends, it is ready again
        or completed. Its total time counts on. An eager one counts when its node task gets all that it gets from the
        one before it, has had no attempt and no limit holds; one that goes on is leased to its worker."""
        ...

    async def fan_out(self, steps: Sequence[FanOutStep], vacancies: Sequence[Vacancy] = ()) -> Effects:
        """Carry out offers of mapped nodes, at least one. A split node runs: its items become ready in order, at most
        `max_parallel` at once, and so do the next ones when some have ended; when too few can complete any more the
        rest is stopped and it fails, when all have ended it is offered to be joined. `results` holds for each "" or
        why it was refused: an offer is good until it is made anew (5 s) or the node task ends; a refused step changes
        nothing."""
        ...

    async def claim(self, vacancies: Sequence[Vacancy] = ()) -> Effects:
        """Give ready node tasks to vacancies, and go on with what is `todo`."""
        ...

    async def open_session(
        self, worker_id: str, incarnation: str, held: Sequence[Held], vacancies: Sequence[Vacancy] = ()
    ) -> Session:
        """Begin the worker's next session. Named node tasks whose lease stands stay with it; whatever else it had is
        given back, and counts as lost when the incarnation is another one."""
        ...

    async def begin_process(self, worker_id: str, incarnation: str) -> Effects:
        """Note which process is behind a worker that opens no stream. When it is known that another one was, all that
        the worker holds is given back and counts as lost; saying the same again changes nothing."""
        ...

    async def renew(self, worker_id: str, session: int, held: Sequence[Held]) -> Renewal:
        """Renew named leases up to the attempt's own time limit. What the session was given over 2 s ago and the
        worker does not name comes again as assignments; stops asked for come again as terminations."""
        ...

    async def give_back(
        self, worker_id: str, session: int, held: Sequence[Held] | None, vacancies: Sequence[Vacancy] = ()
    ) -> Effects:
        """Queue again the named node tasks of a worker, or with None all, as it is gone: then each counts as lost.

        Refused ("replaced") when the session is not its latest. A node task asked to stop becomes terminated.
        """
        ...

    async def postpone(self, postponed: Sequence[Postponed]) -> Effects:
        """Take node tasks back that their workers never got; each is ready again when its wait is over, or with its
        total time. Nothing counts against them. A node task asked to stop becomes terminated; one that does not hold
        its lease is left alone. `results`: "" for each that waits now, else "lost"."""
        ...

    async def hasten(self, task_ids: Sequence[str]) -> Effects:
        """Make postponed node tasks ready now; others are left alone. `results`: "" for each that is ready, else why
        not."""
        ...

    async def pass_on(self, worker_id: str, held: Held, to: str) -> Effects:
        """Hand a node task that a worker did not take to the worker `to`, as the same attempt with a nonce of its own
        and clocks that begin anew; nothing when the lease is not held any more or the node task is to stop."""
        ...

    async def reap(self, vacancies: Sequence[Vacancy] = (), spare_ms: int = 0, by_ms: int = 0) -> Effects:
        """Give back what outlived its lease (counting it as lost; the third time it fails), fail what outlived its
        timeout or its wait for a worker, terminate what did not stop in time. `results` names them.

        For the last `spare_ms` of a lease's time in which workers may come back, what began or became ready before that
        time is left alone; but what has waited for its total time fails. When it is carried out after `by_ms` (0 for
        whenever), nothing is looked at, and the effects are `late`."""
        ...

    def configure(self, config: SystemConfig) -> None:
        """Keep within these limits from now on; what began before counts under new ones once `reopen` has ended."""
        ...

    async def reopen(self, vacancies: Sequence[Vacancy] = ()) -> Effects:
        """Count what runs already under limits that are new, and look anew at all that limits held back: they have
        changed."""
        ...

    async def stop(self, run: RunName, run_id: str, component_id: str, reason: str, by: str, mark_ms: int) -> Effects:
        """Put down a stop mark for a component ("" for the run), also when nothing is there yet; skip what has not
        begun and ask what runs to stop. `results`: how many were skipped, how many asked."""
        ...

    async def release(self, run: RunName, run_id: str, components: Sequence[Release]) -> Effects:
        """Let components that were withheld begin, or skip them; those that are withheld no more are left alone."""
        ...

    async def terminate(self, task_id: str, component_id: str, index: int, reason: str, by: str) -> Effects:
        """Skip a node task that has not begun, terminate a suspended one, ask a running one to stop, of a mapped node
        all its items; `results` is ("unknown",) without its run, and for an item that has not begun."""
        ...

    async def signal(self, signal: Signal) -> Effects:
        """End the wait of a node task, whose attempt is the named one, or keep the signal for one that does not wait:
        it ends a later wait for a signal of its name that has no form. `results` is `resumed` or `kept`, also when the
        same request did so before; else `unknown`, `ended`, `stopping`, `full`, or `changed` when it waits, and is not
        believed to, or the other way round; then nothing is changed."""
        ...

    async def report_sub_flows(self, reports: Sequence[SubFlowReport]) -> Effects:
        """Take what became of cycles that node tasks wait for, each by itself.

        The results are "" where the node task waits, or until now waited, for that cycle, else why it does not. An end
        completes it, or fails its attempt.
        """
        ...

    async def unlist_dead_letter(self, user_id: str, task_id: str) -> None:
        """List a node task as dead letter no more; one that is not listed stays unlisted."""
        ...

    async def purge(self, flow_id: str) -> Purge:
        """Remove a bounded part of a flow; late outcomes and submissions of it are refused from the first call on."""
        ...

    async def clean(self, cleaner: str, place: int | None) -> Cleaned:
        """Remove a bounded part of what has ended and is kept no more, if `cleaner` leads or nobody does.

        Of a flow go the ended runs beyond its newest `keep_cycles`, among those that ended more than a minute ago and
        whose events are acknowledged; what is open stays. Indexes lose what has no record: the list of all node tasks
        from `place` on (0, or where the step before left off), unless that is None."""
        ...

    async def leave_cleaning(self, cleaner: str) -> None:
        """Lead no more: another one may at once."""
        ...

    async def record(self, progress: Sequence[Progress], lines: Sequence[Line]) -> int:
        """Keep progress (never falling within an attempt) and log lines of attempts that hold their lease or ended
        by themselves; return how many were kept."""
        ...
