"""The errors that callers of the scheduler get."""

from collections.abc import Sequence

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.memory import MAX_BYTES
from tradewind.scheduler.domain.run_name import RunName
from tradewind.server.faults import (
    Aborted,
    Conflict,
    Exhausted,
    FailedPrecondition,
    NotFound,
    PermissionDenied,
    Unreadable,
)

_SHOWN = 20


def names_of(run: RunName) -> dict[str, str]:
    """Return the metadata that names a run, by the fields of requests."""
    return {"flow_id": run.flow_id, "cycle": str(run.cycle), "run": str(run.run)}


def flow_not_found(flow_id: str, hint: str = "") -> NotFound:
    """No flow has this id; `hint` may name a similar id that exists."""
    return NotFound("flow", flow_id, hint=hint)


def flow_deleting(flow_id: str) -> FailedPrecondition:
    """The flow is being deleted."""
    return FailedPrecondition(
        "FLOW_DELETING",
        f'flow "{flow_id}" is being deleted; wait until it is gone, or use another id',
        f"flows/{flow_id}",
        {"flow_id": flow_id, "status": "deleting"},
    )


def flow_not_owned(flow_id: str) -> PermissionDenied:
    """The flow belongs to another user."""
    return PermissionDenied(
        "NOT_OWNER",
        f'flow "{flow_id}" belongs to another user: use another id, or ask an operator to change it',
        {"flow_id": flow_id},
    )


def etag_conflict(flow: FlowRecord) -> Aborted:
    """The flow has been changed since the etag was read."""
    return Aborted(
        "VERSION_CONFLICT",
        f'flow "{flow.flow_id}" has changed and is now at revision {flow.revision}, etag "{flow.etag}"; read it '
        "again and repeat the change",
        {"flow_id": flow.flow_id, "etag": flow.etag, "revision": str(flow.revision)},
    )


def revision_not_found(flow_id: str, revision: int, latest: int) -> NotFound:
    """The flow has no such revision, or it is no longer on record; `latest` is the current one."""
    hint = (
        "; it is no longer on record"
        if revision >= 1
        else "; the first was 1, so there is no earlier one to compare it with"
    )
    if revision > latest:
        hint = f"; the latest is {latest}"
    named = {"flow_id": flow_id, "revision": str(revision)}
    return NotFound("revision", f"{flow_id}:{revision}", hint=hint, metadata=named)


def diff_too_large(flow_id: str, first: int, second: int) -> Exhausted:
    """Two revisions differ in more than an answer holds."""
    return Exhausted(
        "TOO_LARGE",
        f'the changes between revisions {first} and {second} of flow "{flow_id}" are too large for an answer; get both '
        "and compare them",
        metadata={"flow_id": flow_id},
    )


def flow_not_running(flow_id: str, status: FlowStatus) -> FailedPrecondition:
    """Only a flow that is running can be paused."""
    return FailedPrecondition(
        "FLOW_NOT_RUNNING",
        f'flow "{flow_id}" is {status.value}; only a running flow can be paused',
        f"flows/{flow_id}",
        {"flow_id": flow_id, "status": status.value},
    )


def flow_not_paused(flow: FlowRecord) -> FailedPrecondition:
    """Only a flow that is paused can be resumed."""
    return FailedPrecondition(
        "FLOW_NOT_PAUSED",
        f'flow "{flow.flow_id}" is {flow.status.value}, not paused; start it instead',
        f"flows/{flow.flow_id}",
        {"flow_id": flow.flow_id, "status": flow.status.value},
    )


def schedule_over(flow: FlowRecord) -> FailedPrecondition:
    """The flow's schedule has nothing more planned."""
    return FailedPrecondition(
        "SCHEDULE_OVER",
        f'the schedule of flow "{flow.flow_id}" has nothing left to run; register the flow with a new schedule, or '
        "run a cycle by hand",
        f"flows/{flow.flow_id}",
        {"flow_id": flow.flow_id, "status": flow.status.value},
    )


def cycle_not_found(flow_id: str, cycle: int | None, run: int | None = None, hint: str = "") -> NotFound:
    """The flow has no such cycle, or its record has passed its retention."""
    parts = {"flow_id": flow_id, "cycle": cycle, "run": run}
    named = {name: str(part) for name, part in parts.items() if part is not None}
    return NotFound("cycle", ":".join(named.values()), hint=hint, metadata=named)


def no_such_cycle(flow: FlowRecord, cycle: int | None, run: int | None) -> NotFound:
    """The same, for a flow at hand: its latest cycle, which None stands for, helps to say why."""
    if flow.last_cycle < 0:
        return cycle_not_found(flow.flow_id, cycle, run, "; the flow has had none yet")
    number = flow.last_cycle if cycle is None else cycle
    hint = ""
    if not 0 <= number <= flow.last_cycle:
        hint = f"; the first was 0, the latest is {flow.last_cycle}"
    elif run is None:
        hint = "; keep_cycles and keep_for of the flow say how long its record is kept"
    return cycle_not_found(flow.flow_id, number, run, hint)


def backfill_not_found(flow_id: str, backfill_id: int) -> NotFound:
    """The flow has no such backfill, or its record has passed its retention."""
    named = {"flow_id": flow_id, "backfill_id": str(backfill_id)}
    return NotFound("backfill", f"{flow_id}:{backfill_id}", metadata=named)


def too_many_backfills(flow_id: str, most: int) -> Exhausted:
    """The flow already has `most` backfills under way."""
    return Exhausted(
        "QUEUE_FULL",
        f'{most} backfills of flow "{flow_id}" are under way; wait for one of them, or cancel one',
        retry_after_s=30.0,
        metadata={"flow_id": flow_id},
    )


def cycle_running(run: RunName) -> FailedPrecondition:
    """Only a run that has ended can be run again."""
    return FailedPrecondition(
        "CYCLE_RUNNING",
        f'run {run.run} of cycle {run.cycle} of flow "{run.flow_id}" has not ended; wait for it, or stop it',
        f"cycles/{run}",
        names_of(run),
    )


def not_latest_run(run: RunName, latest: RunName) -> FailedPrecondition:
    """Only the latest run of a cycle can be run again."""
    return FailedPrecondition(
        "NOT_LATEST_RUN",
        f'cycle {run.cycle} of flow "{run.flow_id}" has been run again; use its latest run, {latest.run}',
        f"cycles/{run}",
        names_of(run) | {"latest_run": str(latest.run)},
    )


def too_many_runs(run: RunName, most: int) -> FailedPrecondition:
    """A cycle has a bounded number of runs."""
    return FailedPrecondition(
        "WRONG_STATUS",
        f'cycle {run.cycle} of flow "{run.flow_id}" has reached the limit of {most} reruns; run the flow for a new '
        "cycle",
        f"cycles/{run}",
        names_of(run),
    )


def nothing_to_rerun(run: RunName) -> FailedPrecondition:
    """Every node has a good result."""
    return FailedPrecondition(
        "NOTHING_TO_RERUN",
        f'every node of cycle {run.cycle} of flow "{run.flow_id}" has a good result; name the nodes to begin at',
        f"cycles/{run}",
        names_of(run),
    )


def results_expired(run: RunName, nodes: Sequence[str]) -> FailedPrecondition:
    """Results that a rerun is to keep are no longer on record."""
    shown = ", ".join(nodes[:_SHOWN]) + (f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else "")
    return FailedPrecondition(
        "RESULTS_EXPIRED",
        f'results of cycle {run.cycle} of flow "{run.flow_id}" have passed their retention: {shown}; run the flow for '
        "a new cycle, and see keep_for and keep_cycles",
        f"cycles/{run}",
        names_of(run) | {"nodes": ",".join(nodes[:_SHOWN])},
    )


def revision_expired(state: ChainState) -> FailedPrecondition:
    """The revision that a cycle began with is no longer on record."""
    run = state.name
    return FailedPrecondition(
        "RESULTS_EXPIRED",
        f'cycle {run.cycle} of flow "{run.flow_id}" began with revision {state.facts.revision}, which is no longer '
        "on record; run the flow for a new cycle",
        f"cycles/{run}",
        names_of(run) | {"revision": str(state.facts.revision)},
    )


def cycle_ended(state: ChainState) -> FailedPrecondition:
    """A run that has ended cannot be stopped."""
    run = state.name
    return FailedPrecondition(
        "CYCLE_ENDED",
        f'run {run.run} of cycle {run.cycle} of flow "{run.flow_id}" has ended ({state.status.value})',
        f"cycles/{run}",
        names_of(run) | {"status": state.status.value},
    )


def memory_closed(state: ChainState) -> FailedPrecondition:
    """The cycle has ended, so its variables can no longer change."""
    return FailedPrecondition(
        "WRONG_STATUS",
        f"cycle {state.name.cycle} of {state.name.flow_id} has ended ({state.status.value}); store variables that "
        "later cycles need in the memory of the flow",
        f"cycles/{state.name}",
        names_of(state.name) | {"status": state.status.value},
    )


def memory_conflict(owner: str, version: int) -> Aborted:
    """Somebody else changed the variables meanwhile; `version` is the version on record, -1 if not known."""
    metadata = {"version": str(version)} if version >= 0 else {}
    return Aborted(
        "VERSION_CONFLICT",
        f"the memory of {owner} was changed by others; read it again and repeat the change",
        metadata,
    )


def memory_full(owner: str, size: int) -> Exhausted:
    """The variables would be larger than the limit."""
    return Exhausted(
        "TOO_LARGE",
        f"the memory of {owner} would take {size} bytes of JSON; at most {MAX_BYTES} (64 KiB): delete variables, or "
        "store large values elsewhere and keep only a reference to them here",
        metadata={"size": str(size), "limit": str(MAX_BYTES)},
    )


def flow_unreadable(flow_id: str) -> Unreadable:
    """A record of the flow has been changed by hand so that it cannot be read."""
    return Unreadable(f"flow:{flow_id}", "it, or a part of it; tradewind doctor says which")


def kept_changing(what: str, **metadata: str) -> Aborted:
    """Others kept changing something that was to be changed, for as long as that was tried."""
    return Aborted("VERSION_CONFLICT", f"{what} kept changing; try again", metadata)


def overlap_skipped(flow_id: str, running: RunName | None) -> Aborted:
    """A cycle of the flow is still running, and the flow's overlap policy is not `allow`."""
    subject = f"cycle {running.cycle}" if running else "a cycle"
    metadata = {"flow_id": flow_id} | ({"cycle": str(running.cycle)} if running else {})
    return Aborted(
        "OVERLAP_SKIPPED",
        f'{subject} of flow "{flow_id}" is still running and its overlap is not "allow"; wait for it, or let cycles '
        f"run side by side: tradewind flow update {flow_id} overlap=allow",
        metadata,
    )


def request_id_reused(request_id: str) -> Conflict:
    """The request_id was used for something else."""
    return Conflict(
        "REQUEST_ID_REUSED",
        f'request_id "{request_id}" was already used for another method or with other arguments; use a new request_id',
        {"request_id": request_id},
    )
