"""Every RPC, called by a user who names what belongs to another: nothing of it is shown, and nothing changes."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
import pytest_asyncio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc.status_pb2 import Status

from tests.system import flows
from tests.system.fuzzed_stack import HUNG_UP, METHODS, path_of
from tests.system.fuzzing import Known, harvest, valid
from tests.system.processes import NODES
from tests.system.promises import reason_in, reason_of
from tests.waiting import until
from tradewind.client import Client, Role
from tradewind.grpc_engine.bearer import with_token
from tradewind.server.access import roles
from tradewind.server.access.methods import rule
from tradewind.server.channels import open_channel
from tradewind.standalone import Standalone
from tradewind.worker import Worker, load_nodes

OWNER, OTHER = "owner-of-it", "somebody-else"
FLOW, SECRET = "flow-of-owner", "only-the-owner-knows"

ANSWERED = {
    *("AnalyzeFlow", "ListFlows", "SubmitTask", "ListTasks", "SubmitBatch", "ListBatches", "ListDeadLetters"),
    *("ListNotifications", "WatchNotifications", "MarkNotificationsRead", "ListConnections"),
    *("ListWorkers", "GetAvailableWorkers", "ListNodeTypes", "GetNodeType", "GetWorker"),
    *("CreateSession", "CreateToken", "ListSessions", "RevokeSessions", "GetUser", "ListQuotas", "WhoAmI"),
}
"""What a user may call with anything: the answer is about their own things, or about workers, which everybody sees."""
REFUSALS = {"NODE_TYPE_NOT_FOUND", "NOT_OWNER", "NODE_TASK_NOT_FOUND", "BATCH_NOT_FOUND", "SESSION_NOT_FOUND"}
_READ_S = 0.3
_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack with a worker and with something of everything that one user owns, and what another could know of it."""

    address: str
    admin: Client
    owner: Client
    tokens: dict[str, str]
    known: Known
    node_task_ids: tuple[str, ...]


@pytest_asyncio.fixture
async def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stack]:
    monkeypatch.delenv("TRADEWIND_TOKEN", raising=False)
    async with (
        Standalone(data=tmp_path / "data", port=0, auth=True) as services,
        Client(services.address, token=services.new_admin_token) as admin,
    ):
        users = {OWNER: Role.USER, OTHER: Role.USER, "pool": Role.WORKER, "op": Role.OPERATOR}
        tokens = {name: (await admin.create_token(name, role=role)).token for name, role in users.items()}
        async with (
            Worker(load_nodes(NODES), address=services.address, token=tokens["pool"]),
            Client(services.address, token=tokens[OWNER]) as owner,
        ):
            known = await _made(owner, admin, services.address, tokens[OWNER])
            ids = tuple(known.pop("node_task_id"))
            yield Stack(services.address, admin, owner, tokens, known, ids)


async def test_nothing_of_another_user_is_shown_or_changed(stack: Stack) -> None:
    """Whoever adds an RPC that users may call, or a field by which one names something, sees here what it lets out."""
    before = await _everything(stack)
    refused = set()
    async with with_token(open_channel(stack.address), stack.tokens[OTHER]) as channel:
        for name, method in METHODS.items():
            access = rule(path_of(method))
            if access is None or not access.admits(roles.Role.USER) or method.name == "RefreshSession":
                continue
            for request in _requests(method, stack):
                reason, text = await _outcome(channel, method, request)
                if reason:
                    refused.add(name)
                    assert reason in REFUSALS, f"{name} of {request} was refused for another reason: {reason}, {text}"
                    assert SECRET not in text, f"{name} of {request} showed {text}"
                else:
                    assert method.name in ANSWERED, f"{name} of {request} answered {text}"
                    assert getattr(request, "user_id", "") != OWNER, f"{name} of {request} answered {text}"
                    assert not any(mark in text for mark in (SECRET, OWNER, FLOW)), f"{name} of {request} showed {text}"
    assert await _everything(stack) == before
    assert len(refused) > 50


async def test_roles_that_may_not_call_a_method_are_refused_whatever_they_send(stack: Stack) -> None:
    callers = {OTHER: Role.USER, "op": Role.OPERATOR, "pool": Role.WORKER}
    for user_id, role in callers.items():
        async with with_token(open_channel(stack.address), stack.tokens[user_id]) as channel:
            for name, method in METHODS.items():
                access = rule(path_of(method))
                if access is None or access.admits(roles.Role(role)):
                    continue
                for request in (valid(method.input_type, stack.known), GetMessageClass(method.input_type)()):
                    reason, text = await _outcome(channel, method, request)
                    assert reason == "ROLE_TOO_SMALL", f"{name} answered {role}: {reason}, {text}"


def _requests(method: MethodDescriptor, stack: Stack) -> Iterator[Message]:
    """Yield requests that name what the owner has, in their own name, and in that of the owner."""
    fields = method.input_type.fields_by_name
    for user_id in ("", OWNER) if "user_id" in fields or method.name == "SubmitBatch" else ("",):
        task_ids = stack.node_task_ids if {"node_task_id", "node_task_ids", "task_id"} & set(fields) else ()
        for task_id in task_ids if task_ids and "batch_id" not in fields else (*task_ids, ""):
            known = {**stack.known, "user_id": [user_id], "node_task_id": [task_id]}
            if task_id:
                # Where a request may name a batch as well, it must name one of the two.
                known.pop("batch_id", None)
            request: Any = valid(method.input_type, known)
            if method.name == "RevokeSessions":
                request.keep_current = True
            yield request
            for page_token in stack.known.get(f"page_token of {method.name}", ()):
                request.page_token = page_token
                yield request


async def _everything(stack: Stack) -> list[object]:
    """Return all that the owner has, and who may do what."""
    owner = stack.owner
    (batch_id,) = stack.known["batch_id"]
    return [
        await owner.get_flow(FLOW),
        [each async for each in owner.list_revisions(FLOW)],
        [each async for each in owner.list_cycles(FLOW)],
        [each async for each in owner.list_flows()],
        await owner.cycle(FLOW, 0).describe(include_outputs=True),
        await owner.get_memory(FLOW),
        [each async for each in owner.list_backfills(FLOW)],
        [each async for each in owner.list_tasks()],
        [each async for each in owner.list_batches()],
        [each async for each in owner.list_dead_letters()],
        await owner.get_batch(batch_id),
        [each async for each in owner.list_notifications()],
        [each.session_id async for each in owner.list_sessions()],
        {each.user_id: each.role async for each in stack.admin.list_users()},
    ]


async def _made(owner: Client, admin: Client, address: str, owners_token: str) -> dict[str, list[Any]]:
    """Make one of everything for the owner; return the values of all fields in the answers about it."""
    await owner.register_flow(f"{FLOW}-2", flows.sums())
    await owner.submit_batch("nobody", [{}])
    await owner.register_flow(FLOW, flows.sums(interval="1d", overlap="allow"), labels={"secret": SECRET})
    await owner.update_flow(FLOW, {"interval": "2d"}, note=SECRET)
    assert (await (await owner.run_flow(FLOW, {"start": 3})).wait(30)).succeeded
    await owner.update_memory(FLOW, {"secret": SECRET})
    backfill = await owner.backfill_flow(FLOW, datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 6, tzinfo=UTC))

    async def has_ended() -> bool:
        return (await owner.get_backfill(FLOW, backfill.backfill_id)).status != "running"

    await until(has_ended, "the backfill has ended")
    task = await owner.submit_task("nobody", {"secret": SECRET})
    failed = await owner.submit_task("failing", {"total": 7})
    batch = await owner.submit_batch("nobody", [{"secret": SECRET}, {}])
    await failed.wait(30)
    await admin.send_notification(SECRET, user_id=OWNER)
    await admin.send_notification(SECRET, user_id=OWNER)
    known: defaultdict[str, list[Any]] = defaultdict(list)
    async with with_token(open_channel(address), owners_token) as channel:
        requests: dict[str, dict[str, Any]] = {
            "SchedulerService.GetFlow": {"flow_id": FLOW},
            "SchedulerService.ListCycles": {"flow_id": FLOW, "page_size": 1},
            "SchedulerService.DescribeCycle": {"flow_id": FLOW, "cycle": 0, "include_outputs": True},
            "SchedulerService.ListBackfills": {"flow_id": FLOW},
            "SchedulerService.ListFlows": {"page_size": 1},
            "NodeTaskManagerService.ListTasks": {"page_size": 1},
            "NodeTaskManagerService.ListBatches": {"page_size": 1},
            "NodeTaskManagerService.ListDeadLetters": {"page_size": 1},
            "NodeTaskManagerService.ListNotifications": {"page_size": 1},
            "AccessService.ListSessions": {},
        }
        for name, fields in requests.items():
            method = METHODS[name]
            (answer,) = await _answers(channel, method, GetMessageClass(method.input_type)(**fields))
            harvest(answer, known)
            if token := getattr(answer, "next_page_token", ""):
                known[f"page_token of {method.name}"] = [token]
    # The values that a request needs and that are nobody's.
    known["batch_id"][:] = [batch.batch_id]
    del known["log_id"]
    known |= {"node_type": ["numbers"], "total": [1], "parameters_json": ["{}"]}
    known["node_task_id"][:] = [f"{FLOW}:0:0:feed", task.task_id, failed.task_id, f"batch:{batch.batch_id}:0"]
    return known


async def _answers(channel: grpc.aio.Channel, method: MethodDescriptor, request: Message) -> list[Message]:
    """Return the answer to a request, or the answers that a stream gives within moments. Raises AioRpcError."""
    kinds = ("stream" if each else "unary" for each in (method.client_streaming, method.server_streaming))
    answer_of = GetMessageClass(method.output_type).FromString
    stub: Any = getattr(channel, "_".join(kinds))(path_of(method), type(request).SerializeToString, answer_of)
    call = stub([request] if method.client_streaming else request, timeout=_TIMEOUT_S)
    if not method.server_streaming:
        return [await call]
    found: list[Message] = []
    try:
        async with asyncio.timeout(_READ_S):
            async for answer in call:
                found.append(answer)
    except TimeoutError:
        call.cancel()
    return found


async def _outcome(channel: grpc.aio.Channel, method: MethodDescriptor, request: Message) -> tuple[str, str]:
    """Return the reason of a refusal and what it says, or "" and the answers as text."""
    try:
        answers: list[Any] = await _answers(channel, method, request)
        if method.name == "StreamRuns":
            # Its answers carry the errors.
            status = Status.FromString(answers[0].answers[0].error_status)
            return reason_in(status), status.message
        return "", "".join(map(str, answers))
    except grpc.aio.AioRpcError as error:
        if error.details() == HUNG_UP:
            return await _outcome(channel, method, request)
        return reason_of(error.trailing_metadata()) or error.code().name, error.details() or ""
