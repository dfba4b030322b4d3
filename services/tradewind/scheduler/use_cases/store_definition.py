"""Puts a checked definition on record, to register, update or roll back a flow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tradewind.scheduler.domain.flow_definition import FlowDefinition
from tradewind.scheduler.domain.flow_record import (
    DEFAULT_USER,
    FlowRecord,
    FlowRegistration,
    RegisterOutcome,
    RememberedRequest,
)
from tradewind.scheduler.domain.flow_status import FlowStatus
from tradewind.scheduler.domain.json_text import canonical_json, digest_of
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.use_cases.change_flow import ChangeFlow
from tradewind.scheduler.use_cases.definitions import Definitions
from tradewind.scheduler.use_cases.faults import (
    etag_conflict,
    flow_deleting,
    flow_not_found,
    flow_not_owned,
    request_id_reused,
)
from tradewind.scheduler.use_cases.planned_times import first_when_registered
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import request_id_faults


@dataclass(frozen=True, slots=True)
class Registered:
    """A registered flow; `changed` is False when the same definition was already on record."""

    flow: FlowRecord
    changed: bool
    warnings: tuple[Violation, ...]


@dataclass(frozen=True, slots=True)
class Author:
    """Who makes a revision and why; `etag` is the etag of the flow that it is meant to change, empty for any.

    `request_id` makes repeating the call safe, empty for none.
    """

    by: str = "user"
    note: str = ""
    etag: str = ""
    request_id: str = ""

    def faults(self) -> list[Violation]:
        """Return the faults of its fields."""
        found = request_id_faults(self.request_id)
        for path, value, most in (("by", self.by, 128), ("note", self.note, 1024)):
            if len(value) > most:
                found.append(Violation(path, f"must have at most {most} characters, has {len(value)}"))
        return found

    def request(self, user_id: str, flow_id: str, *payload: object) -> RememberedRequest | None:
        """Return the request as it is remembered, None without an id; `payload` are the call's other arguments."""
        if not self.request_id:
            return None
        payload_digest = digest_of(canonical_json(payload))
        return RememberedRequest(user_id or DEFAULT_USER, flow_id, self.request_id, payload_digest)


class StoreDefinition:
    """The last step of a change: stores it, learns the definition, and brings a running flow's trigger up to date."""

    def __init__(self, flows: FlowRecords, definitions: Definitions, change_flow: ChangeFlow) -> None:
        self._flows = flows
        self._definitions = definitions
        self._change_flow = change_flow

    async def __call__(
        self,
        registration: FlowRegistration,
        warnings: Sequence[Violation] = (),
        definition: FlowDefinition | None = None,
    ) -> Registered:
        """Store a registration; with its `definition`, that is not read once more.

        Raises FailedPrecondition for a flow that is being deleted, Conflict for a request_id that was used for
        something else, Aborted for an etag that is not the current one, NotFound for an etag when the flow does not
        exist, PermissionDenied for another user's flow that only its owner may change.
        """
        flow_id = registration.flow_id
        outcome, _ = await self._flows.register(registration)
        if outcome is RegisterOutcome.DELETING:
            raise flow_deleting(flow_id)
        if outcome is RegisterOutcome.NOT_OWNER:
            raise flow_not_owned(flow_id)
        if outcome is RegisterOutcome.REUSED and registration.request is not None:
            raise request_id_reused(registration.request.request_id)
        changed = outcome in (RegisterOutcome.CREATED, RegisterOutcome.CHANGED)
        (flow,) = await self._flows.find([flow_id])
        if flow is None or outcome is RegisterOutcome.NOT_FOUND:
            raise flow_not_found(flow_id)
        if outcome is RegisterOutcome.MOVED:
            raise etag_conflict(flow)
        is_stored = flow.config_json == registration.config_json
        await self._definitions.learn(flow, definition if is_stored else None)
        if changed and flow.status is FlowStatus.RUNNING:
            flow = await self._change_flow.revised(flow_id)
        return Registered(flow, changed, tuple(warnings))


def registration_of(
    flow_id: str,
    definition: FlowDefinition,
    labels: Mapping[str, str],
    now_ms: int,
    author: Author,
    *,
    standing: FlowRecord | None = None,
    user_id: str = "",
    request: RememberedRequest | None = None,
) -> FlowRegistration:
    """Return what is put on record; `labels` are all labels of the flow, `standing` is the flow on record, if known.

    Raises InvalidInput when a schedule other than that of `standing` has nothing more planned.
    """
    config_json = definition.to_json()
    pairs = tuple(sorted(labels.items()))
    try:
        first_ms, passed = first_when_registered(definition, now_ms, standing)
    except InvalidInput:
        if standing is None or standing.schedule != definition.schedule:
            raise
        first_ms, passed = 0, None
    return FlowRegistration(
        flow_id=flow_id,
        user_id=user_id,
        config_json=config_json,
        structure_json=canonical_json(definition.structure().to_dict()),
        labels=pairs,
        digest=digest_of(canonical_json([config_json, pairs])),
        schedule=definition.schedule,
        overlap=definition.overlap,
        keep_cycles=definition.keep_cycles,
        pause_after_failures=definition.pause_after_failures,
        first_ms=first_ms,
        passed=passed,
        request=request,
        etag=author.etag,
        by=author.by or "user",
        note=author.note,
    )
