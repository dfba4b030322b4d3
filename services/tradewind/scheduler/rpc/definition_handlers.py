"""The part of SchedulerService that checks, plans, registers and revises definitions: parse, use case, answer."""

from dataclasses import dataclass
from typing import Any

from tradewind.api.scheduler.v1 import revision_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2_grpc as pb2_grpc
from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.rpc import flow_mapping, revision_mapping
from tradewind.scheduler.rpc.definition_mapping import read_draft, settings_of
from tradewind.scheduler.use_cases.plan_flow import PlanFlow
from tradewind.scheduler.use_cases.read_revisions import ReadRevisions
from tradewind.scheduler.use_cases.register_flow import RegisterFlow, RegistrationRequest
from tradewind.scheduler.use_cases.revise_flow import ReviseFlow
from tradewind.scheduler.use_cases.store_definition import Author
from tradewind.server.access.identity import is_restricted
from tradewind.server.all_faults import every, require
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.identifiers import check_identifier, require_identifiers
from tradewind.server.interception import Context
from tradewind.server.large_work import LARGE_BYTES, in_thread_if
from tradewind.server.paging import page_of, page_token


@dataclass(eq=False, kw_only=True)
class DefinitionHandlers(pb2_grpc.SchedulerServiceServicer):
    """Definitions of flows, and their revisions."""

    register: RegisterFlow
    plan: PlanFlow
    revise: ReviseFlow
    revisions: ReadRevisions

    async def AnalyzeFlow(self, request: pb2.AnalyzeFlowRequest, context: Context) -> pb2.AnalyzeFlowResponse:
        draft = await read_draft(request.definition.WhichOneof("form"), request.definition)
        analysis = await self.register.analyze(draft)
        return pb2.AnalyzeFlowResponse(
            structure=await in_thread_if(draft.size > LARGE_BYTES, flow_mapping.structure, analysis.structure),
            violations=flow_mapping.violations(analysis.violations),
            warnings=flow_mapping.violations(analysis.warnings),
        )

    async def RegisterFlow(self, request: pb2.RegisterFlowRequest, context: Context) -> pb2.RegisterFlowResponse:
        draft, author = await read_draft(request.WhichOneof("definition"), request), _author(request)
        registration = RegistrationRequest(
            request.flow_id, draft, dict(request.labels), request.user_id, author, is_restricted()
        )
        if request.validate_only:
            plan = await self.plan(registration)
            return pb2.RegisterFlowResponse(
                changed=plan.changed,
                warnings=flow_mapping.violations(plan.analysis.warnings),
                plan=await in_thread_if(draft.size > LARGE_BYTES, revision_mapping.plan, plan),
            )
        registered = await self.register(registration)
        return pb2.RegisterFlowResponse(
            flow=flow_mapping.flow(registered.flow),
            changed=registered.changed,
            warnings=flow_mapping.violations(registered.warnings),
        )

    async def UpdateFlow(
        self, request: revision_pb2.UpdateFlowRequest, context: Context
    ) -> revision_pb2.UpdateFlowResponse:
        author = _author(request)
        faults = FaultList()
        if (fault := check_identifier("flow_id", request.flow_id)) is not None:
            faults.add(fault.path, fault.message)
        given = settings_of(request.spec, faults)
        paths = list(request.update_mask.paths)
        updated = await self.revise.update(request.flow_id, given, paths, faults, author)
        return revision_pb2.UpdateFlowResponse(
            flow=flow_mapping.flow(updated.flow),
            changed=updated.changed,
            warnings=flow_mapping.violations(updated.warnings),
        )

    async def ListRevisions(
        self, request: revision_pb2.ListRevisionsRequest, context: Context
    ) -> revision_pb2.ListRevisionsResponse:
        below, limit = page_of(request, int, flow_id=request.flow_id)
        page = await self.revisions.page(request.flow_id, below or 0, limit)
        return revision_pb2.ListRevisionsResponse(
            revisions=[revision_mapping.revision(found, page.current) for found in page.revisions],
            next_page_token=page_token(page.following or None),
        )

    async def GetRevision(
        self, request: revision_pb2.GetRevisionRequest, context: Context
    ) -> revision_pb2.GetRevisionResponse:
        _, number = every(lambda: require_identifiers(flow_id=request.flow_id), lambda: _number(request, "revision"))
        found, config_json, current = await self.revisions.revision(request.flow_id, number)
        return revision_pb2.GetRevisionResponse(
            revision=revision_mapping.revision(found, current), config_json=config_json
        )

    async def DiffRevisions(
        self, request: revision_pb2.DiffRevisionsRequest, context: Context
    ) -> revision_pb2.DiffRevisionsResponse:
        _, first, second = every(
            lambda: require_identifiers(flow_id=request.flow_id),
            lambda: _number(request, "from_revision"),
            lambda: _number(request, "to_revision"),
        )
        first, second, diff = await self.revisions.diff(request.flow_id, first, second)
        message = await in_thread_if(diff.size > LARGE_BYTES, revision_mapping.diff, diff)
        return revision_pb2.DiffRevisionsResponse(from_revision=first, to_revision=second, diff=message)

    async def RollBackFlow(
        self, request: revision_pb2.RollBackFlowRequest, context: Context
    ) -> revision_pb2.RollBackFlowResponse:
        author = _author(request)
        every(
            lambda: require_identifiers(flow_id=request.flow_id),
            lambda: _number(request, "revision", least=1),
            lambda: require(author.faults()),
        )
        registered = await self.revise.roll_back(request.flow_id, request.revision, author)
        return revision_pb2.RollBackFlowResponse(
            flow=flow_mapping.flow(registered.flow),
            changed=registered.changed,
            warnings=flow_mapping.violations(registered.warnings),
        )


def _author(request: Any) -> Author:
    return Author(request.by, request.note, request.etag, request.request_id)


def _number(request: Any, field: str, least: int = 0) -> int:
    """Return the number of a revision; 0 is allowed unless `least` is 1. Raises InvalidInput."""
    number: int = getattr(request, field)
    if number < least:
        zero = "" if least else ", or 0"
        raise InvalidInput([Violation(field, f"must be the number of a revision{zero}, is {number}")])
    return number
