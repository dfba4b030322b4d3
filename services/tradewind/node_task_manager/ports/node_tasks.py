"""Changing node tasks, and what follows from the changes."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tradewind.node_task_manager.domain.batch import Deletion
from tradewind.node_task_manager.domain.component import Release, RunSubmission, SubmitResult
from tradewind.node_task_manager.domain.fan_out import FanOutStep
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.sub_flow import SubFlowReport
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.domain.waiting import Signal
from tradewind.node_task_manager.ports.events import NewEvent
from tradewind.node_task_manager.ports.reading import Line, Progress
from tradewind.node_task_manager.ports.work import Effects, Held, Outcome, Postponed, Vacancy


class Session(msgspec.Struct, frozen=True):
    """A worker's new session, the nonces of the given tokens that hold no lease, and what followed."""

    session: int
    lost: tuple[str, ...]
    effects: Effects


class Renewal(msgspec.Struct, frozen=True):
    """What became of the given leases: `lost` pairs nonces with the reason; assignments in `effects` are sent again."""

    session_current: bool
    lost: tuple[tuple[str, str], ...]
    lease_deadline: int
    effects: Effects


class Submitted(msgspec.Struct, frozen=True):
    """Answers to submissions in their order, and what followed."""

    results: tuple[SubmitResult, ...]
    effects: Effects


class Purge(msgspec.Struct, frozen=True):
    """The progress of a flow's removal."""

    removed: int
    done: bool
    effects: Effects


class Cleaned(msgspec.Struct, frozen=True):
    """What a step of cleaning did: `leads` says that the caller may clean, `waits` that lapsed leases come first.

    `keys` counts the keys examined; `runs`, `node_tasks` and `entries` (of indexes) count what was removed. The next
    step goes on at `place` of the list of all node tasks, None at its end, and at `recall` of calling up open runs;
    `more` says that it can begin at once, `behind` for how many ms what is left has been due. `events` are for the
    scheduler, in order within each partition.
    """

    leads: bool
    waits: bool = False
    keys: int = 0
    runs: int = 0
    node_tasks: int = 0
    entries: int = 0
    place: int | None = None
    recall: int | None = None
    more: bool = False
    behind: int = 0
    events: tuple[NewEvent, ...] = ()


class NodeTaskStore(Protocol):
    """Node tasks of one shard, and all that changes them."""

    async def submit(self, runs: Sequence[RunSubmission], vacancies: Sequence[Vacancy] = ()) -> Submitted:
        """Create runs. A run that exists is `duplicate`, a different run under the same name `run_conflict`, a run with
        plans that were not saved `plan_unknown`, a run begun before its flow was purged `flow_purged`; none of these
        changes anything. A run with a stop mark begins stopped."""
        ...

    async def complete(self, outcomes: Sequence[Outcome], vacancies: Sequence[Vacancy] = ()) -> Effects:
        """End attempts that hold their lease; repeating an outcome that took effect is fine. `results` holds "" for
        each, or why it was refused; a refused outcome changes nothing. Signals are delivered, and successors released
        or skipped, transitively. A suspended node task holds no lease and no slot; when its wait ends, it is ready
        again or completed. Its total time keeps running. An eager outcome counts if its node task gets all its input
        from the outcome before it, has had no attempt and meets no limit; an eager attempt that goes on is leased to
        its worker."""
        ...

    async def fan_out(self, steps: Sequence[FanOutStep], vacancies: Sequence[Vacancy] = ()) -> Effects:
        """Carry out offers of mapped nodes, at least one. A split node runs: its items become ready in order, at most
        `max_parallel` at once, the next as others end. When too few can complete any more, the rest is stopped and the
        node fails; when all have ended, an offer to join it is made. `results` holds "" for each step, or why it was
        refused: an offer is valid until it is made anew (5 s) or the node task ends. A refused step changes nothing."""
        ...

    async def claim(self, vacancies: Sequence[Vacancy] = ()) -> Effects:
        """Give ready node tasks to vacancies, and go on with the work that is `todo`."""
        ...

    async def open_session(self, worker_id: str, incarnation: str, held: Sequence[Held]) -> Session:
        """Begin the worker's next session. `held` node tasks whose lease stands stay with it; whatever else it had is
        given back, and counts as lost when the incarnation has changed."""
        ...

    async def begin_process(self, worker_id: str, incarnation: str) -> Effects:
        """Note which process is behind a worker that opens no stream. If another process is known to have been, all
        that the worker holds is given back and counts as lost; saying the same again changes nothing."""
        ...

    async def renew(self, worker_id: str, session: int, held: Sequence[Held]) -> Renewal:
        """Renew the `held` leases, up to the attempt's own time limit. What the session was given over 2 s ago and the
        worker does not name comes again as assignments; stops asked for come again as terminations."""
        ...

    async def give_back(self, worker_id: str, session: int, held: Sequence[Held] | None) -> Effects:
        """Queue the `held` node tasks of a worker again; None means all, as the worker is gone: each counts as lost.

        Refused ("replaced") when the session is not its latest. A node task asked to stop becomes terminated.
        """
        ...

    async def postpone(self, postponed: Sequence[Postponed]) -> Effects:
        """Take back node tasks that their workers never got; each is ready again when its wait or its total time is
        over. Nothing counts against them, nor towards a rate. A node task asked to stop becomes terminated, and one
        whose total time is over fails; one that does not hold its lease is left alone. `results`: "" for each that
        waits now, else "lost"."""
        ...

    async def hasten(self, task_ids: Sequence[str]) -> Effects:
        """Make postponed node tasks ready now; others are left alone. `results`: "" for each that is ready, else why
        not."""
        ...

    async def pass_on(self, worker_id: str, held: Held, to: str) -> Effects:
        """Hand a node task that a worker did not take to the worker `to`: the same attempt, with a new nonce and its
        clocks begun anew. Does nothing when the lease is not held any more or the node task is to stop."""
        ...

    async def reap(self, spare_ms: int = 0, by_ms: int = 0) -> Effects:
        """Give back node tasks that outlived their lease (each counts as lost; the third time it fails), fail those
        that outlived their timeout or their wait for a worker, terminate those that did not stop in time. `results`
        names them.

        `spare_ms` is what is left of a lease's time in which workers may come back: node tasks that began or became
        ready before that time are spared, but waiting ones fail once their total time is over. When carried out after
        `by_ms` (0 for any time), nothing is examined, and the effects are `late`."""
        ...

    def configure(self, config: SystemConfig) -> None:
        """Keep within these limits from now on; running node tasks count under new limits once `reopen` has ended."""
        ...

    async def reopen(self) -> Effects:
        """Count running node tasks under limits that are new, and look again at all that the old limits held back."""
        ...

    async def stop(self, run: RunName, run_id: str, component_id: str, reason: str, by: str, mark_ms: int) -> Effects:
        """Put down a stop mark for a component ("" for the run), even when nothing is there yet; skip node tasks that
        have not begun and ask running ones to stop. `results`: how many were skipped, how many asked."""
        ...

    async def release(self, run: RunName, run_id: str, components: Sequence[Release]) -> Effects:
        """Let withheld components begin, or skip them; components that are not withheld are left alone."""
        ...

    async def terminate(self, task_id: str, component_id: str, index: int, reason: str, by: str) -> Effects:
        """Skip a node task that has not begun, terminate a suspended one, ask a running one to stop; for a mapped node,
        all its items. `results` is ("unknown",) when its run is not there, and for an item that has not begun."""
        ...

    async def signal(self, signal: Signal) -> Effects:
        """End the wait of a node task at the signal's attempt. If it does not wait, keep the signal: it ends a later
        wait for a signal of its name that has no form. `results` is `resumed` or `kept`, also when the same request did
        so before; else nothing is changed and it is `unknown`, `ended`, `stopping`, `full`, or `changed` when the node
        task waits though the caller believes it does not, or the other way round."""
        ...

    async def report_sub_flows(self, reports: Sequence[SubFlowReport]) -> Effects:
        """Take reports of the cycles that node tasks wait for, each report by itself.

        `results` is "" where the node task waits, or waited until now, for that cycle, else why it does not. The end of
        the cycle completes the node task, or fails its attempt.
        """
        ...

    async def unlist_dead_letter(self, user_id: str, task_id: str) -> None:
        """Take a node task off the list of dead letters, if it is there."""
        ...

    async def delete_batch(self, run: RunName, user_id: str) -> Deletion:
        """Remove a batch of this user that has ended, with its plan, results and log lines, at once."""
        ...

    async def purge(self, flow_id: str, schedule_epoch: int = 0) -> Purge:
        """Remove a bounded part of a flow; its submissions are refused from the first call on.

        Open runs come first, a bounded number in each call; from then on, their late outcomes are refused. Once all of
        a flow is gone, further calls for it, or for an earlier flow of its name, change nothing: a later one may have
        begun runs. With epoch 0, whatever has the name is removed. Runs are refused that began up to now, or up to the
        epoch, as ms of the scheduler's store, if that is earlier.
        """
        ...

    async def clean(self, cleaner: str, place: int | None, recall: int | None = None) -> Cleaned:
        """Remove a bounded number of ended records that need not be kept, if `cleaner` leads or nobody does.

        Of each run that has been open for an hour, ask the scheduler by an event whether it has ended; and again every
        hour. With `recall` (0, or where the previous step left off), ask about all open runs now.

        A flow loses ended runs beyond its newest `keep_cycles`, if they ended more than a minute ago and their events
        are acknowledged; open runs stay. Indexes lose entries without a record: the list of all node tasks from `place`
        on (0, or where the previous step left off), unless that is None."""
        ...

    async def leave_cleaning(self, cleaner: str) -> None:
        """Give up the lead; another cleaner may take it at once."""
        ...

    async def record(self, progress: Sequence[Progress], lines: Sequence[Line]) -> int:
        """Keep progress (which never falls within an attempt) and log lines of attempts that hold their lease or ended
        by themselves; return how many were kept."""
        ...
