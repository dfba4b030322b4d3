"""Converts chain states to the fields of a hash, and back."""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from tradewind.scheduler.domain.beginning import BeginRequest, CycleShape
from tradewind.scheduler.domain.chain_state import (
    ERROR,
    MEMORY,
    REASON,
    RESULT,
    STATUS,
    STOP,
    SUBMITTED,
    ChainState,
    ComponentEnd,
    CycleFacts,
    CycleOrigin,
    StopRequest,
    component_field,
)
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.failure_policy import FailurePolicy
from tradewind.scheduler.domain.flow_record import RememberedRequest
from tradewind.scheduler.domain.handlers import Handlers
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.rerun import Rerun
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.stores.redis.note_codec import note_field, notes_after

Field = str | int

_COMPONENT = component_field("")
_end_text = ",".join(["{}"] * len(ComponentEnd._fields)).format
_LARGE = frozenset({MEMORY, RESULT})
_NO_STOP = StopRequest("", "", 0)


class _Facts(msgspec.Struct, array_like=True):
    """Facts that never change, in one field: many fields cost the store time and memory.

    Scripts read none of them but `request`, the name of the request that the run was begun for, which `request_of` in
    `partition.lua` knows by its place.
    """

    user_id: str
    revision: int
    origin: CycleOrigin
    node_count: int
    component_count: int
    failure_policy: FailurePolicy
    keep_cycles: int
    traceparent: str
    keep_for_ms: int = 0
    handlers: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    digest: str = ""
    runs_flows: bool = True
    request: str = ""


class _Rerun(msgspec.Struct, array_like=True):
    """A Rerun; its indexes of nodes are stored as ranges, each by its first and last index."""

    source: int
    source_id: str
    kept: list[tuple[str, list[tuple[int, int]]]]
    from_nodes: list[str]
    by: str
    reason: str


_decode_parent = msgspec.json.Decoder(tuple[str, str, str, int, int]).decode
_decode_rerun = msgspec.json.Decoder(_Rerun).decode
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Facts).decode


def facts_text(request: BeginRequest) -> str:
    """Return the field `facts` of the requested run."""
    shape = request.shape
    return _facts_text(shape, request.origin, len(shape.node_ids), request.traceparent, request.request)


def facts_text_of(facts: CycleFacts, request: RememberedRequest | None = None) -> str:
    """Return the field `facts` of a run that begins with these facts, for a request if any."""
    return _facts_text(facts, facts.origin, facts.node_count, facts.traceparent, request)


def _facts_text(
    known: CycleShape | CycleFacts,
    origin: CycleOrigin,
    node_count: int,
    traceparent: str,
    request: RememberedRequest | None,
) -> str:
    facts = _Facts(
        known.user_id,
        known.revision,
        origin,
        node_count,
        known.component_count,
        known.failure_policy,
        known.keep_cycles,
        traceparent,
        known.keep_for_ms,
        (known.handlers.on_failure, known.handlers.last) if known.handlers else None,
        known.digest,
        known.runs_flows,
        request.name if request else "",
    )
    return _encode(facts).decode()


def parent_text(parent: Parent) -> str:
    """Return the field `parent`."""
    return _encode((str(parent.run), parent.run_id, parent.node, parent.attempt, parent.depth)).decode()


def _parent(text: str) -> Parent:
    run, run_id, node, attempt, depth = _decode_parent(text)
    return Parent(RunName.parse(run), run_id, node, attempt, depth)


def rerun_text(rerun: Rerun) -> str:
    """Return the field `rerun`."""
    kept = [(component_id, _ranges(indexes)) for component_id, indexes in rerun.kept]
    stored = _Rerun(rerun.source, rerun.source_id, kept, list(rerun.from_nodes), rerun.by, rerun.reason)
    return _encode(stored).decode()


def _ranges(indexes: Iterable[int]) -> list[tuple[int, int]]:
    ranges: list[tuple[int, int]] = []
    for index in indexes:
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1] = (ranges[-1][0], index)
        else:
            ranges.append((index, index))
    return ranges


def _rerun(text: str) -> Rerun:
    stored = _decode_rerun(text)
    kept = tuple(
        (name, tuple(at for first, last in ranges for at in range(first, last + 1))) for name, ranges in stored.kept
    )
    return Rerun(stored.source, stored.source_id, kept, tuple(stored.from_nodes), stored.by, stored.reason)


def update_fields(state: ChainState, names: Collection[str]) -> list[Field]:
    """Return the named fields of a state, flat, except those that the script or `large_fields` write.

    The script writes status, end time and version.
    """
    fields: list[Field] = []
    for name in names:
        if name.startswith(_COMPONENT):
            fields += (name, _end_text(*state.components[name[len(_COMPONENT) :]]))
        elif name == REASON:
            fields += (name, state.reason)
        elif name == SUBMITTED:
            fields += (name, state.submitted_ms)
        elif name == STOP and state.stop is not None:
            stop = state.stop
            fields += ("stop_by", stop.by, "stop_reason", stop.reason, "stop_at", stop.at_ms)
            fields += ("stop_timeout", int(stop.timeout), "stop_request", stop.request_id)
            if stop.forced:
                fields += ("stop_forced", 1)
        elif name == ERROR:
            fields += (name, state.notes.error)
        elif name != STATUS and name not in _LARGE:
            raise ValueError(f'a chain state has no field "{name}" that could be written')
    return fields


def large_fields(state: ChainState, names: Collection[str]) -> list[Field] | bool:
    """Return those of the named fields that are not published with a change, flat; False when there are none."""
    if _LARGE.isdisjoint(names):
        return False
    return [part for name in _LARGE.intersection(names) for part in (name, note_field(state.notes, name))]


def as_mapping(flat: Iterable[Field]) -> dict[str, Field]:
    """Return flat fields as a mapping."""
    each = iter(flat)
    return dict(zip(map(str, each), each, strict=True))


def state_of(run: RunName, record: Mapping[str, Field]) -> ChainState:
    """Return the state that a whole record holds."""
    text = {name: str(value) for name, value in record.items()}
    known = _decode(text["facts"])
    start_ms = int(text["start_time"])
    facts = CycleFacts(
        run_id=text["run_id"],
        user_id=known.user_id,
        revision=known.revision,
        origin=known.origin,
        planned_ms=int(text.get("planned_time", start_ms)),
        start_ms=start_ms,
        deadline_ms=int(text.get("deadline", 0)),
        node_count=known.node_count,
        component_count=known.component_count,
        failure_policy=known.failure_policy,
        inputs_json=text.get("memory", ""),
        traceparent=known.traceparent,
        keep_cycles=known.keep_cycles,
        keep_for_ms=known.keep_for_ms,
        handlers=Handlers(*known.handlers) if known.handlers else None,
        backfill_id=int(text.get("backfill", 0)),
        parent=_parent(text["parent"]) if "parent" in text else None,
        rerun=_rerun(text["rerun"]) if "rerun" in text else None,
        digest=known.digest,
        runs_flows=known.runs_flows,
    )
    # A record at version 1 has no version field.
    return _with_progress(ChainState(run, facts, 0), text)


def state_after(before: ChainState, record: Mapping[str, Field]) -> ChainState:
    """Return the state that results from writing some fields."""
    return _with_progress(before, {name: str(value) for name, value in record.items()})


def _with_progress(state: ChainState, text: Mapping[str, str]) -> ChainState:
    components = dict(state.components)
    for name, value in text.items():
        if name.startswith(_COMPONENT):
            components[name[len(_COMPONENT) :]] = ComponentEnd(*map(int, value.split(",")))
    stop = state.stop
    if "stop_at" in text:
        before = stop or _NO_STOP
        stop = StopRequest(
            text["stop_by"],
            text["stop_reason"],
            int(text["stop_at"]),
            timeout=text["stop_timeout"] == "1" if "stop_timeout" in text else before.timeout,
            forced="stop_forced" in text or before.forced,
            request_id=text.get("stop_request", before.request_id),
        )
    return ChainState(
        name=state.name,
        facts=state.facts,
        version=int(text["version"]) if "version" in text else state.version + 1,
        status=CycleStatus(text.get("status", state.status)),
        components=components,
        reason=text.get("reason", state.reason),
        stop=stop,
        submitted_ms=int(text.get("submitted_at", state.submitted_ms)),
        end_ms=int(text.get("end_time", state.end_ms)),
        notes=notes_after(state.notes, text),
    )
