"""What a client asks the scheduler about flows."""

import re
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tradewind.api.scheduler.v1 import flow_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client.calls import new_request_id
from tradewind.client.connection import Connection
from tradewind.client.cycles import CycleRecord, cycle_from
from tradewind.client.definitions import Definition, flow_id_and_definition, weather_json
from tradewind.client.errors import InvalidInput, NotFound, TradewindError, Violation
from tradewind.client.flows import (
    FlowAnalysis,
    FlowRecord,
    FlowStatus,
    RegisteredFlow,
    components_from,
    flow_from,
    violations_from,
)
from tradewind.client.messages import build, describe_value
from tradewind.client.refusals import error_of_reason
from tradewind.client.started import Started
from tradewind.client.wire import Seconds, as_list, duration, numbers_of, object_json, seconds_of, timestamp
from tradewind.flow import Flow

PAGE = 100
BULK_ITEMS = 10_000
BULK_BYTES = 2 * 1024 * 1024
STREAMED_INPUTS = 512 * 1024
"""The most characters of inputs for a run over the stream; a run with more is a call of its own."""
_ITEM = re.compile(r"^items\[(\d+)\]")

Inputs = Mapping[str, Any] | str
"""The inputs of a cycle: a JSON object, or its text."""


@dataclass(frozen=True, slots=True)
class FlowDescription:
    """A flow and its latest cycle, which is None before the first."""

    flow: FlowRecord
    current_cycle: CycleRecord | None


@dataclass(frozen=True, slots=True)
class RunRequest:
    """One of many cycles to run now."""

    flow_id: str
    inputs: Inputs | None = None


class FlowCalls:
    """Flows, and running them."""

    _connection: Connection
    _user_id: str
    _run_stream: bool

    async def register_flow(
        self,
        flow_id: str | Flow,
        definition: Definition | None = None,
        *,
        labels: Mapping[str, str] | None = None,
        note: str = "",
        etag: str = "",
        request_id: str | None = None,
    ) -> RegisteredFlow:
        """Register a flow, or a new revision of one; `note` says why, for those who look at revisions later.

        `definition` is a Flow, Weather Syntax as a dict or JSON text, or the path of a JSON or YAML file. A Flow given
        alone is registered under its own id; otherwise `flow_id` counts, whatever id the Flow has. With the `etag` of a
        flow that was read, the call is refused if somebody has changed the flow since. Raises InvalidInput with every
        fault, WrongStatus while the flow is being deleted, with an etag Aborted or NotFound, and ValueError or OSError
        for a definition that cannot be read.
        """
        flow_id, definition = flow_id_and_definition(flow_id, definition)
        request = build(
            pb.RegisterFlowRequest,
            flow_id=flow_id,
            weather_json=weather_json(definition),
            labels=labels,
            user_id=self._user_id,
            request_id=request_id or new_request_id(),
            note=note,
            by=self._user_id,
            etag=etag,
        )
        answer = await self._connection.call(self._connection.scheduler.RegisterFlow, request)
        return RegisteredFlow(flow_from(answer.flow), answer.changed, violations_from(answer.warnings))

    async def analyze_flow(self, definition: Definition) -> FlowAnalysis:
        """Return the components, faults and warnings of a definition, without registering it."""
        request = pb.AnalyzeFlowRequest(definition=flow_pb2.FlowDefinition(weather_json=weather_json(definition)))
        answer = await self._connection.call(self._connection.scheduler.AnalyzeFlow, request)
        return FlowAnalysis(
            components_from(answer.structure), violations_from(answer.violations), violations_from(answer.warnings)
        )

    async def get_flow(self, flow_id: str) -> FlowDescription:
        """Return a flow and its latest cycle. Raises NotFound."""
        request = build(pb.GetFlowRequest, flow_id=flow_id)
        answer = await self._connection.call(self._connection.scheduler.GetFlow, request)
        cycle = cycle_from(answer.current_cycle) if answer.HasField("current_cycle") else None
        return FlowDescription(flow_from(answer.flow), cycle)

    async def list_flows(
        self,
        *,
        statuses: Iterable[FlowStatus | str] = (),
        labels: Mapping[str, str] | None = None,
        created_after: datetime | None = None,
        created_before: datetime | None = None,
    ) -> AsyncIterator[FlowRecord]:
        """Yield flows by id; if given, only flows in one of `statuses` and with all of `labels`."""
        numbers = numbers_of(flow_pb2.FlowStatus, statuses)
        request = build(
            pb.ListFlowsRequest,
            page_size=PAGE,
            statuses=numbers,
            labels=labels,
            created_after=timestamp(created_after),
            created_before=timestamp(created_before),
        )
        async for page in self._connection.pages(self._connection.scheduler.ListFlows, request):
            for flow in page.flows:
                yield flow_from(flow)

    async def start_flow(self, flow_id: str, *, at: datetime | None = None) -> FlowRecord:
        """Start the schedule of a flow: the first cycle begins now or `at` a time, or when the schedule plans it next.

        A running flow is unchanged. Raises NotFound.
        """
        request = build(pb.StartFlowRequest, flow_id=flow_id, start_at=timestamp(at))
        answer = await self._connection.call(self._connection.scheduler.StartFlow, request)
        return flow_from(answer.flow)

    async def stop_flow(self, flow_id: str, *, reason: str = "") -> FlowRecord:
        """Begin no more cycles until the flow is started, stop running nodes, skip waiting ones. Raises NotFound."""
        request = build(pb.StopFlowRequest, flow_id=flow_id, reason=reason, by=self._user_id)
        answer = await self._connection.call(self._connection.scheduler.StopFlow, request)
        return flow_from(answer.flow)

    async def delete_flow(self, flow_id: str, *, wait: Seconds = 30.0) -> bool:
        """Stop a flow and delete everything about it.

        Returns whether all of it is gone; what is left after `wait` is deleted in the background. Raises NotFound.
        """
        seconds = seconds_of(wait)
        request = build(pb.DeleteFlowRequest, flow_id=flow_id, wait=duration(seconds))
        answer = await self._connection.call_or_done(
            self._connection.scheduler.DeleteFlow, request, NotFound, extra=seconds
        )
        return answer is None or answer.done

    async def _start_cycle(
        self, flow_id: str, inputs: Inputs | None = None, *, wait: Seconds = 0.0, request_id: str | None = None
    ) -> Started:
        """Run one cycle now, for Client.run_flow."""
        seconds, connection = seconds_of(wait), self._connection
        request = build(
            pb.RunFlowRequest,
            flow_id=flow_id,
            inputs_json=object_json(inputs, "inputs"),
            wait=duration(seconds),
            include_outputs=seconds > 0,
            **connection.request_id_fields(request_id, seconds),
        )
        # A message that is too large would end its stream, and with it all runs under way.
        if self._run_stream and len(request.inputs_json) <= STREAMED_INPUTS:
            encoded = connection.encode(request)
            answer = await connection.repeated(lambda: connection.runs.run(encoded, connection.timeout + seconds))
        else:
            answer = await connection.call(connection.scheduler.RunFlow, request, extra=seconds)
        return Started(answer, with_outputs=request.include_outputs)

    async def _start_cycles(
        self, requests: Iterable[RunRequest | str], *, wait: Seconds = 0.0
    ) -> list[Started | TradewindError]:
        """Run many cycles now, for Client.run_flows."""
        seconds, connection = seconds_of(wait), self._connection
        with_outputs = seconds > 0
        results: list[Started | TradewindError] = []
        # Encoded before they are cut into messages: a codec makes inputs larger.
        encoded = map(connection.encode, map(_item, as_list(requests, "requests")))
        for items in list(_batches(encoded)):
            request = build(
                pb.RunFlowsRequest,
                items=items,
                wait=duration(seconds),
                include_outputs=with_outputs,
                **connection.request_id_fields(None, seconds),
            )
            try:
                answer = await connection.call(connection.scheduler.RunFlows, request, extra=seconds)
            except TradewindError as error:
                # Once cycles may have begun, their handles must not be lost.
                if not results:
                    raise
                results += [_counted_on(error, len(results))] * len(items)
                continue
            for result in answer.results:
                if result.HasField("cycle"):
                    results.append(Started(result, with_outputs=with_outputs))
                else:
                    results.append(error_of_reason(result.error_reason, result.error_message))
        return results


def _item(request: RunRequest | str) -> pb.RunFlowItem:
    if isinstance(request, str):
        return build(pb.RunFlowItem, flow_id=request)
    if not isinstance(request, RunRequest):
        raise TypeError(f"each request must be a flow's id or a RunRequest; {describe_value(request)}")
    return build(pb.RunFlowItem, flow_id=request.flow_id, inputs_json=object_json(request.inputs, "inputs"))


def _counted_on(error: TradewindError, sent: int) -> TradewindError:
    """Return the error for a message with the numbers that its items have among all, of which `sent` were before."""
    if not isinstance(error, InvalidInput):
        return error
    faults = [
        Violation(_ITEM.sub(lambda found: f"items[{int(found[1]) + sent}]", each.path), each.message)
        for each in error.violations
    ]
    return InvalidInput(error.message, faults, reason=error.reason, metadata=error.metadata)


def _batches(all_items: Iterable[pb.RunFlowItem]) -> Iterable[list[pb.RunFlowItem]]:
    """Cut many runs into lists that fit into one message each."""
    items: list[pb.RunFlowItem] = []
    size = 0
    for item in all_items:
        item_size = item.ByteSize()
        if items and (len(items) == BULK_ITEMS or size + item_size > BULK_BYTES):
            yield items
            items, size = [], 0
        items.append(item)
        size += item_size
    if items:
        yield items
