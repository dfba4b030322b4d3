"""What a client asks the scheduler about definitions of flows: planning, changing and looking back."""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from google.protobuf.field_mask_pb2 import FieldMask

from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.api.scheduler.v1 import revision_pb2 as revision_pb
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client.calls import new_request_id
from tradewind.client.connection import Connection
from tradewind.client.definitions import Definition, flow_id_and_definition, weather_json
from tradewind.client.flows import flow_from, violations_from
from tradewind.client.messages import build, describe_value
from tradewind.client.plans import FlowPlan, plan_from
from tradewind.client.revisions import (
    RevisedFlow,
    RevisionDefinition,
    RevisionDiff,
    RevisionRecord,
    diff_from,
    revision_from,
)
from tradewind.flow import Flow, FlowError, spec_of
from tradewind.flow.values import seconds_in

_PAGE = 100
_SCHEDULE = "schedule."
_LENGTHS = ("interval", "timeout", "keep_for", "jitter", "catch_up_window")
_GRAPH = ("nodes", "edges", "on_failure", "finally")


class RevisionCalls:
    """The part of Client that plans flows, changes their fields other than the graph, and reads older revisions."""

    _connection: Connection
    _user_id: str

    async def plan_flow(
        self,
        flow_id: str | Flow,
        definition: Definition | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        etag: str = "",
    ) -> FlowPlan:
        """Return what registering a flow would do, including faults, without storing anything.

        A Flow may be given alone. Raises what registering raises because of an existing flow: WrongStatus while it is
        being deleted, and with an etag Aborted or NotFound.
        """
        flow_id, definition = flow_id_and_definition(flow_id, definition)
        request = build(
            pb.RegisterFlowRequest,
            flow_id=flow_id,
            weather_json=weather_json(definition),
            labels=labels,
            user_id=self._user_id,
            etag=etag,
            validate_only=True,
        )
        answer = await self._connection.call(self._connection.scheduler.RegisterFlow, request)
        return plan_from(flow_id, answer)

    async def update_flow(
        self, flow_id: str, changes: Mapping[str, Any], *, note: str = "", etag: str = "", request_id: str | None = None
    ) -> RevisedFlow:
        """Change fields of a flow but not its nodes and edges; a running flow follows a new schedule at once.

        `changes` has a new value in Weather Syntax, or `None` for the default, for each field: interval, schedule or
        one of its fields such as `schedule.jitter`, overlap, failure_policy, timeout, keep_cycles, keep_for,
        max_running, pause_after_failures, labels, description. With the `etag` of a flow that was read, the call is
        refused if somebody has changed the flow since. Raises NotFound, InvalidInput, Aborted, and FlowError for what
        the request cannot hold.
        """
        if not isinstance(changes, Mapping):
            raise TypeError(f'changes must map fields to values, as in {{"interval": "5s"}}; {describe_value(changes)}')
        request = build(
            revision_pb.UpdateFlowRequest,
            flow_id=flow_id,
            spec=_spec(changes),
            update_mask=FieldMask(paths=list(changes)),
            etag=etag,
            request_id=request_id or new_request_id(),
            note=note,
            by=self._user_id,
        )
        answer = await self._connection.call(self._connection.scheduler.UpdateFlow, request)
        return _revised(answer)

    async def list_revisions(self, flow_id: str) -> AsyncIterator[RevisionRecord]:
        """Yield the revisions of a flow that are on record, newest first. Raises NotFound."""
        request = build(revision_pb.ListRevisionsRequest, flow_id=flow_id, page_size=_PAGE)
        async for page in self._connection.pages(self._connection.scheduler.ListRevisions, request):
            for revision in page.revisions:
                yield revision_from(revision)

    async def get_revision(self, flow_id: str, revision: int | None = None) -> RevisionDefinition:
        """Return a revision of a flow, by default the current one, with its definition. Raises NotFound."""
        request = build(revision_pb.GetRevisionRequest, flow_id=flow_id, revision=revision or 0)
        answer = await self._connection.call(self._connection.scheduler.GetRevision, request)
        return RevisionDefinition(revision_from(answer.revision), answer.config_json)

    async def diff_revisions(self, flow_id: str, first: int | None = None, second: int | None = None) -> RevisionDiff:
        """Return how two revisions of a flow differ.

        By default, `second` is the current revision, and `first` the revision before it. Raises NotFound, and
        Exhausted when the difference does not fit into an answer.
        """
        request = build(
            revision_pb.DiffRevisionsRequest, flow_id=flow_id, from_revision=first or 0, to_revision=second or 0
        )
        answer = await self._connection.call(self._connection.scheduler.DiffRevisions, request)
        return RevisionDiff(answer.from_revision, answer.to_revision, diff_from(answer.diff))

    async def roll_back_flow(
        self, flow_id: str, revision: int, *, note: str = "", etag: str = "", request_id: str | None = None
    ) -> RevisedFlow:
        """Go back to the definition and labels of an older revision, as a new one; running cycles finish on theirs.

        Raises NotFound, InvalidInput when its schedule plans nothing any more, Aborted for an outdated etag.
        """
        request = build(
            revision_pb.RollBackFlowRequest,
            flow_id=flow_id,
            revision=revision,
            note=note,
            by=self._user_id,
            etag=etag,
            request_id=request_id or new_request_id(),
        )
        answer = await self._connection.call(self._connection.scheduler.RollBackFlow, request)
        return _revised(answer)


def _revised(answer: revision_pb.UpdateFlowResponse | revision_pb.RollBackFlowResponse) -> RevisedFlow:
    return RevisedFlow(flow_from(answer.flow), answer.changed, tuple(map(str, violations_from(answer.warnings))))


def _spec(changes: Mapping[str, Any]) -> flow_pb2.FlowSpec:
    """Return changes as a typed message. Raises FlowError with everything that the message cannot hold."""
    faults = [fault for path, value in changes.items() if (fault := _fault(path, value))]
    if not faults:
        return spec_of(_weather_of(changes))
    # The request is not sent, so the faults that the server would report are found here as well.
    faults += [fault for path, value in changes.items() if (fault := _duration_fault(path, value))]
    raise faults[0] if len(faults) == 1 else FlowError("\n  ".join(["the changes have faults:", *map(str, faults)]))


def _fault(path: str, value: Any) -> FlowError | None:
    if re.split(r"[.\[]", path, maxsplit=1)[0] in _GRAPH:
        return FlowError("is part of the graph; to change it, register the flow again", path)
    try:
        spec_of(_weather_of({path: value}), without=_GRAPH)
    except FlowError as fault:
        return fault
    return None


def _duration_fault(path: str, value: Any) -> FlowError | None:
    try:
        if path.removeprefix(_SCHEDULE) in _LENGTHS and isinstance(value, str):
            seconds_in(value)
    except ValueError as fault:
        return FlowError(str(fault), path)
    return None


def _weather_of(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return changes as a flow in Weather Syntax, with `schedule.<field>` moved into `schedule`."""
    weather = {path: value for path, value in changes.items() if value is not None and not path.startswith(_SCHEDULE)}
    for path, value in changes.items():
        if value is not None and path.startswith(_SCHEDULE):
            weather["schedule"] = {**weather.get("schedule", {}), path.removeprefix(_SCHEDULE): value}
    return weather
