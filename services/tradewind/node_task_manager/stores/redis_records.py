"""Decoding the records of node tasks and components in Redis."""

from collections.abc import Sequence
from typing import TypeAlias, TypeVar

import msgspec

from tradewind.node_task_manager.domain.component import Component, ComponentStatus
from tradewind.node_task_manager.domain.item_counts import ItemCounts
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus, PastAttempt, StopMark, TaskError
from tradewind.node_task_manager.domain.waiting import Resumption, Wait

Facts = TypeVar("Facts", bound=msgspec.Struct)

_stop = msgspec.msgpack.Decoder(StopMark).decode
_history = msgspec.msgpack.Decoder(tuple[PastAttempt, ...]).decode
_error = msgspec.msgpack.Decoder(TaskError).decode
_wait = msgspec.msgpack.Decoder(Wait).decode
_resumption = msgspec.msgpack.Decoder(Resumption).decode
_COUNTS = ("total", "need", "begun", "completed", "failed", "cancelled")
FIELDS = (
    *("state", "waiting", "live", "reason", "error", "lost"),
    *("failures", "retry_at", "history", "blocked"),
    *("progress", "message", "step", "cached", "kept", "child", "postponed"),
    *("stop", "wait", "resumed"),
    *(f"items_{name}" for name in _COUNTS),
)
"""The fields of a node task that are not values."""
COMPONENT_FIELDS = ("facts", "state", "failed", "terminated", "skipped", "stop", "running", "cached", "early")
"""The fields of a component."""
_PURGED = "purged"
Record: TypeAlias = dict[str, bytes]
"""The fields that a node task or a component has."""


def place_of(task_id: str) -> tuple[str, str]:
    """Return the run of a node task, and the prefix of its fields in the hash of the run."""
    parts = task_id.split(":")
    named = 3 if len(parts) > 3 else min(len(parts), 2)
    return ":".join(parts[:named]), ":".join([*parts[named:], ""]) or ":"


def _number(record: Record, field: str) -> int:
    return int(record.get(field) or 0)


def text_of(record: Record, field: str) -> str:
    """Return a field, "" when it is not there."""
    return record.get(field, b"").decode()


def emitted_handles(record: Record) -> Sequence[str]:
    """Return the handles by which a node task emitted."""
    return state_of(record).handles if "state" in record else ()


def may_have_several_inputs(task_id: str, record: Record) -> bool:
    """Say whether a node task may have several inputs: it has several edges, or is an item of a node that has."""
    return "state" in record and state_of(record).edge is None and ("waiting" in record or task_id.count(":") > 3)


def plan_of(facts: bytes | None) -> str:
    """Return the digest of a component's plan from its facts, "" without facts."""
    return "" if facts is None else _unpacked(facts, _ComponentFacts).plan


def outputs_of(record: Record) -> tuple[tuple[str, str], ...]:
    """Return the values that a node task emitted, by handle, if they were read."""
    return tuple(sorted(_prefixed(record, "out:")))


_SHORT_LIST = 0x90
"""The MessagePack header of a list of up to 15 values, to which their number is added."""


def _unpacked(values: bytes, kind: type[Facts]) -> Facts:
    """Decode values that scripts have packed one after the other, without a list around them."""
    return msgspec.msgpack.decode(bytes([_SHORT_LIST + len(kind.__struct_fields__)]) + values, type=kind)


class TaskState(msgspec.Struct, array_like=True, frozen=True):
    """What every node task comes to have, as packing.lua writes it.

    `ended` holds when it ended, and then the handles by which it emitted.
    """

    status: NodeTaskStatus
    component_id: str
    index: int
    registered_at: str
    ready_at: str | None
    attempt: int | None
    nonce: str | None
    worker_id: str | None
    started_at: str | None
    close_at: int | None
    edge: int | None
    stopping: bool | None
    slots: str | None
    ended: list[str] | None

    @property
    def handles(self) -> Sequence[str]:
        """The handles by which it emitted."""
        return (self.ended or ())[1:]


def state_of(record: Record) -> TaskState:
    """Return the state of a node task."""
    return _unpacked(record["state"], TaskState)


def task_of(task_id: str, record: Record, deadline: float | None) -> NodeTask:
    """Return a node task, with those of its values that were read; `deadline` in epoch ms."""
    stop, error = record.get("stop"), record.get("error")
    state = state_of(record)
    return NodeTask(
        task_id=task_id,
        status=state.status,
        component_id=state.component_id,
        index=state.index,
        waiting=_number(record, "waiting"),
        live=_number(record, "live"),
        reason=text_of(record, "reason"),
        error=None if error is None else _error(error),
        attempt=state.attempt or 0,
        nonce=state.nonce or "",
        worker_id=state.worker_id or "",
        lost=_number(record, "lost"),
        failures=_number(record, "failures"),
        retry_at=_number(record, "retry_at"),
        history=_history(record["history"]) if "history" in record else (),
        progress=_number(record, "progress"),
        message=text_of(record, "message"),
        step=text_of(record, "step"),
        registered_at=int(state.registered_at),
        ready_at=int(state.ready_at or 0),
        started_at=int(state.started_at or 0),
        ended_at=int(state.ended[0]) if state.ended else 0,
        lease_deadline=int(deadline or 0),
        stop=None if stop is None else _stop(stop),
        slots=tuple(sorted((state.slots or "").split())) if state.status is NodeTaskStatus.RUNNING else (),
        blocked=text_of(record, "blocked").partition("|")[0],
        inputs=_inputs(record, state.edge),
        outputs=outputs_of(record),
        emitted=tuple(sorted(state.handles)),
        cached=text_of(record, "cached"),
        kept=text_of(record, "kept"),
        child=text_of(record, "child"),
        postponed=_number(record, "postponed"),
        items=_items(record),
        wait=_wait(record["wait"]) if state.status is NodeTaskStatus.SUSPENDED else None,
        resumed=_resumption(record["resumed"]) if "resumed" in record else None,
    )


def _inputs(record: Record, only: int | None) -> tuple[tuple[int, str], ...]:
    """Return the values of edges; `only` is the edge of a node that has a single one."""
    if only is not None and "input" in record:
        return ((only, text_of(record, "input")),)
    return tuple(sorted((int(at), value) for at, value in _prefixed(record, "in:")))


def _items(record: Record) -> ItemCounts | None:
    return ItemCounts(*(_number(record, f"items_{name}") for name in _COUNTS)) if "items_total" in record else None


def _prefixed(record: Record, prefix: str) -> list[tuple[str, str]]:
    return [(name.removeprefix(prefix), value.decode()) for name, value in record.items() if name.startswith(prefix)]


class _ComponentFacts(msgspec.Struct, array_like=True, frozen=True):
    """The facts of a component from its beginning, as packing.lua writes them."""

    run_id: str
    user_id: str
    plan: str
    nodes: int
    policy: str
    partition: int
    planned_ms: int
    traceparent: str | bool
    parts: int | bool
    submitted_at: int
    node_type: str
    edition: str
    has_inputs: bool


class _ComponentState(msgspec.Struct, array_like=True, frozen=True):
    """What changes about most components, as packing.lua writes it; one that has only begun has none."""

    status: str = ComponentStatus.RUNNING
    completed: int = 0
    sinks: int = 0
    eventful: bool = False
    finished_at: str | None = None


def component_of(run: RunName, component_id: str, record: Record) -> Component | None:
    """Return a component from its record; None when there is none, or when it is being purged."""
    if "facts" not in record:
        return None
    facts = _unpacked(record["facts"], _ComponentFacts)
    state = _unpacked(record["state"], _ComponentState) if "state" in record else _ComponentState()
    if state.status == _PURGED:
        return None
    stop = record.get("stop")
    return Component(
        run=run,
        run_id=facts.run_id,
        component_id=component_id,
        status=ComponentStatus(state.status),
        user_id=facts.user_id,
        plan=facts.plan,
        nodes=facts.nodes,
        completed=state.completed,
        failed=_number(record, "failed"),
        terminated=_number(record, "terminated"),
        skipped=_number(record, "skipped"),
        sinks_completed=state.sinks,
        submitted_at=facts.submitted_at,
        finished_at=int(state.finished_at or 0),
        stop=None if stop is None else _stop(stop),
        node_type=facts.node_type,
        running=_number(record, "running"),
        cached=_number(record, "cached"),
        withheld=text_of(record, "early") == "held" and state.status == ComponentStatus.RUNNING,
    )
