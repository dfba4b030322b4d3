"""A whole stack to be called with anything: its contents, the calls, and a check that it is still alive."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.json_format import ParseDict
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from google.rpc.status_pb2 import Status

from tests.ports import free_port
from tests.system import fuzzing
from tests.system.promises import paths_in, reason_in, status_in
from tests.waiting import until
from tradewind.api.access.v1 import access_service_pb2
from tradewind.api.access.v1.session_pb2 import ROLE_USER
from tradewind.api.keda.v1 import external_scaler_pb2
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2
from tradewind.api.registry.v1 import registry_service_pb2
from tradewind.api.scheduler.v1 import scheduler_service_pb2
from tradewind.api.trigger.v1 import trigger_service_pb2
from tradewind.api.worker.v1 import worker_service_pb2
from tradewind.server.bootstrap import Server
from tradewind.server.redis.embedded import EmbeddedStore
from tradewind.standalone.services import ACL_USERS, Login, build_services
from tradewind.worker import Worker, node

_FILES = (
    access_service_pb2,
    worker_service_pb2,
    scheduler_service_pb2,
    node_task_manager_service_pb2,
    trigger_service_pb2,
    registry_service_pb2,
    external_scaler_pb2,
)
_DESTRUCTIVE = ("Delete", "Purge", "Clear", "Drain", "Deregister", "UpdateConfig", "Remove")
METHODS: dict[str, MethodDescriptor] = {
    f"{service.name}.{method.name}": method
    for file in _FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
"""Every RPC of the stack; those that remove what others need come last."""
METHODS = dict(sorted(METHODS.items(), key=lambda item: item[1].name.startswith(_DESTRUCTIVE)))

CALLERS = ("service", "user")
"""The callers: a server, which may do everything, and a user, who may do little."""

_SECRET = "a secret of all the servers"
_WORKER_SERVICE = worker_service_pb2.DESCRIPTOR.services_by_name["WorkerService"].full_name

FAULTS = {
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.DATA_LOSS,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""Statuses that no message may cause; UNAVAILABLE is allowed, because a store may be slow for a moment."""
_TIMEOUT_S = 60.0
_SHORT_TIMEOUT_S = 0.1
_MAX_READS = 3
_CODES = {code.value[0]: code for code in grpc.StatusCode}
HUNG_UP = "Internal error from Core"
"""The details that gRPC itself gives instead of the answer when writing to a stream that the server has just ended."""

NODE = {
    "id": "first",
    "type": "fuzz.node",
    "config_json": "{}",
    "retry": {"attempts": 2},
    "timeout": "1h",
    "schedule_to_start": "1h",
}
SPEC = {
    "interval": "1h",
    "nodes": [NODE, NODE | {"id": "second", "map": "in"}, NODE | {"id": "third"}],
    "edges": [{"source": "first", "source_handle": "out", "target": "second", "target_handle": "in"}],
    "timeout": "2h",
    "labels": {"team": "fuzz"},
}
TYPE = {"type": "fuzz.node", "inputs": [{"name": "in"}], "outputs": [{"name": "out"}]}
WORKER = {"worker_id": "fuzzer", "incarnation": "one", "node_types": ["fuzz.node"], "capacity": 10}
PLAN_NODE = {
    "node_id": "first",
    "node_type": "fuzz.node",
    "config_json": "{}",
    "start_to_close": "60s",
    "schedule_to_start": "60s",
}
TRIGGER = {
    "trigger_id": "beat",
    "queue": "fuzz.queue",
    "schedule": {"interval": {"interval": "3600s"}, "jitter": "1s"},
    "payload_json": "{}",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """How a call ended; `reason` is empty for a success, and for what gRPC itself refuses.

    `paths` are those of the violations.
    """

    code: grpc.StatusCode
    details: str
    reason: str = ""
    paths: tuple[str, ...] = ()


@node("fuzz.called")
async def called(value: Any = None) -> Any:
    """Emit the input."""
    return value


class FuzzedStack:
    """A stack that is called in the test's own loop, so it goes on only while a call is under way."""

    def __init__(self, runner: asyncio.Runner, address: str) -> None:
        self._runner = runner
        self._address = address
        self._round = 0
        self._worker: Worker
        self._channel: grpc.aio.Channel
        self._worker_channel: grpc.aio.Channel
        self._tokens = {"service": _SECRET, "user": ""}
        self.known: defaultdict[str, list[Any]] = defaultdict(list)

    def open(self) -> None:
        """Connect, and start a worker that is to be called."""
        self._runner.run(self._open())

    async def _open(self) -> None:
        self._channel = grpc.aio.insecure_channel(self._address)
        worker_address = f"127.0.0.1:{free_port()}"
        self._worker = Worker(
            [called], address=self._address, token=_SECRET, worker_id="called", listen=worker_address, grace=0
        )
        await self._worker.__aenter__()
        self._worker_channel = grpc.aio.insecure_channel(worker_address)

    def close(self) -> None:
        """Disconnect, and end the worker; raises WorkerError when the worker has left before."""
        self._runner.run(self._close())

    async def _close(self) -> None:
        await self._worker_channel.close()
        try:
            await self._worker.__aexit__(None, None, None)
        finally:
            await self._channel.close()

    def prepare(self) -> None:
        """Set up a flow with a running cycle, a task, a batch, a trigger, a user and a worker with leases: all new."""
        self._round += 1
        self.known.clear()
        flow = f"flow-{self._round}"
        self.known["user_id"].append("default")
        self.known["node_id"].extend(("first", "second", "third"))
        for name, content in self._steps(flow):
            request = ParseDict(content, GetMessageClass(METHODS[name].input_type)())
            fuzzing.harvest(request, self.known)
            self._runner.run(self._unary(METHODS[name], request, harvested=self.known))
        user = access_service_pb2.CreateTokenRequest(user_id=f"user-{self._round}", role=ROLE_USER)
        made: defaultdict[str, list[Any]] = defaultdict(list)
        self._runner.run(self._unary(METHODS["AccessService.CreateToken"], user, harvested=made))
        (self._tokens["user"],) = made["token"]
        for name in ("user_id", "session_id"):
            self.known[name] += made[name]

    def _steps(self, flow: str) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "RegistryService.RegisterWorker", {"worker": WORKER, "node_types": [TYPE]}
        yield "SchedulerService.RegisterFlow", {"flow_id": flow, "spec": SPEC}
        yield "SchedulerService.RunFlow", {"flow_id": flow, "request_id": flow}
        options = {"schedule_to_start": "3600s", "start_to_close": "60s"}
        task = {"user_id": "default", "node_type": "fuzz.node", "parameters_json": "{}", "options": options}
        yield "NodeTaskManagerService.SubmitTask", task
        yield "NodeTaskManagerService.ListTasks", {"user_id": "default"}
        yield "SchedulerService.DescribeCycle", {"flow_id": flow, "cycle": 0, "run": 0}
        claim = {"worker_id": "fuzzer", "incarnation": "one", "node_types": ["fuzz.node"], "limit": 5}
        yield "NodeTaskManagerService.ClaimNodeTasks", claim
        yield "TriggerService.SaveTrigger", {"trigger": TRIGGER}

    def sample_requests(self, method: MethodDescriptor) -> Sequence[Message]:
        """Return requests of a method that are valid or nearly valid."""
        kind = method.input_type
        made = [fuzzing.valid(kind, self.known)]
        flow = self.known["flow_id"][0]
        for content in _SAMPLE_REQUESTS.get(kind.full_name.rpartition(".")[2], ()):
            named = {"flow_id": flow} if "flow_id" in kind.fields_by_name else {}
            made.append(ParseDict(content | named, GetMessageClass(kind)()))
        return made

    def call(self, method: MethodDescriptor, messages: Sequence[Message | bytes], caller: str) -> Answer:
        """Call a method with one request, or with a stream of them."""
        if method.client_streaming or method.server_streaming:
            return self._runner.run(self._stream(method, messages, caller))
        return self._runner.run(self._unary(method, messages[0], caller))

    def wait_until_alive(self, after: MethodDescriptor) -> None:
        """Wait until the stack, or the worker if that was called, answers a harmless call."""
        listing = METHODS["SchedulerService.ListFlows"]
        stopping = METHODS["WorkerService.Terminate"]

        async def is_alive() -> bool:
            if after.containing_service.full_name == _WORKER_SERVICE:
                return (await self._unary(stopping, b"")).code is grpc.StatusCode.OK
            return (await self._unary(listing, b"")).code is grpc.StatusCode.OK

        self._runner.run(until(is_alive, "the stack answers"))

    def _channel_to(self, method: MethodDescriptor) -> grpc.aio.Channel:
        return self._worker_channel if method.containing_service.full_name == _WORKER_SERVICE else self._channel

    def _metadata(self, caller: str) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._tokens[caller]}"),)

    async def _unary(
        self,
        method: MethodDescriptor,
        request: Message | bytes,
        caller: str = "service",
        *,
        harvested: defaultdict[str, list[Any]] | None = None,
    ) -> Answer:
        waits = "wait" in method.input_type.fields_by_name
        answer_of = GetMessageClass(method.output_type).FromString
        call = self._channel_to(method).unary_unary(path_of(method), _serialized, answer_of)
        timeout = _SHORT_TIMEOUT_S if waits else _TIMEOUT_S
        try:
            answer = await call(request, timeout=timeout, metadata=self._metadata(caller))
        except grpc.aio.AioRpcError as error:
            return _answer_of(error.code(), error.details(), waits, status_in(error.trailing_metadata()))
        if harvested is not None:
            fuzzing.harvest(answer, harvested)
        return Answer(grpc.StatusCode.OK, "")

    async def _stream(self, method: MethodDescriptor, messages: Sequence[Message | bytes], caller: str) -> Answer:
        """Send a few messages, half-close the stream, read a few answers, and hang up."""
        method_of = self._channel.stream_stream(path_of(method), _serialized, bytes)
        call: grpc.aio.StreamStreamCall[Any, bytes] = method_of(
            timeout=_SHORT_TIMEOUT_S, metadata=self._metadata(caller)
        )
        try:
            for message in messages if method.client_streaming else messages[:1]:
                await call.write(message)
            await call.done_writing()
            for _ in range(_MAX_READS):
                answer = await call.read()
                if not isinstance(answer, bytes):
                    break
                for error in _embedded_errors(GetMessageClass(method.output_type).FromString(answer)):
                    if error.code in FAULTS:
                        call.cancel()
                        return error
            else:
                call.cancel()
                return Answer(grpc.StatusCode.OK, "")
        except (grpc.aio.AioRpcError, grpc.aio.InternalError, asyncio.InvalidStateError):
            # This may be because the server ended the call before everything was written.
            pass
        status = status_in(await call.trailing_metadata())
        return _answer_of(await call.code(), await call.details(), True, status)


def path_of(method: MethodDescriptor) -> str:
    """Return the path of a method on the wire."""
    return f"/{method.containing_service.full_name}/{method.name}"


def _answer_of(code: grpc.StatusCode, details: str | None, brief: bool, status: Status) -> Answer:
    if brief and (code is grpc.StatusCode.DEADLINE_EXCEEDED or details == HUNG_UP):
        code = grpc.StatusCode.OK
    return Answer(code, details or "", reason_in(status), paths_in(status))


def _embedded_errors(message: Message) -> Iterator[Answer]:
    """Yield the errors that a stream's message carries about the requests that it answers."""
    for field, value in message.ListFields():
        if field.name == "error_status":
            status = Status.FromString(value)
            yield Answer(_CODES[status.code], status.message)
        elif isinstance(value, Sequence):
            for each in value:
                if isinstance(each, Message):
                    yield from _embedded_errors(each)


def _serialized(message: Message | bytes) -> bytes:
    return message if isinstance(message, bytes) else message.SerializeToString()


SUBMISSION = {
    "runs": [
        {
            "flow_id": "raw",
            "run_id": "0123456789abcdef0123",
            "user_id": "default",
            "components": [{"component_id": "0", "plan_digest": "d"}],
            "inputs_json": "{}",
            "begun_at": "2026-11-21T09:30:00Z",
            "planned_time": "2026-11-21T09:30:00Z",
        }
    ],
    "plans": [
        {
            "digest": "d",
            "nodes": [PLAN_NODE, PLAN_NODE | {"node_id": "second"}],
            "edges": [{"source": 0, "target": 1, "source_handle": "out", "target_handle": "in"}],
        }
    ],
}
_SAMPLE_REQUESTS: dict[str, Sequence[dict[str, Any]]] = {
    "ExecuteRequest": [
        {
            "assignments": [{"token": "0~task:t1~1~n", "node_task_id": "task:t1", "node_type": "fuzz.called"}],
            "lease": "30s",
            "renew_interval": "10s",
        }
    ],
    "TerminateRequest": [{"terminations": [{"token": "0~task:t1~1~n", "stop": {"reason": "enough"}, "grace": "1s"}]}],
    "AdmitCallRequest": [{"user_id": "user-1", "endpoint": "RunFlow", "limit": "2/d", "calls": 1}],
    "ReserveCallsRequest": [{"user_id": "user-1", "endpoint": "RunFlow", "quota": 3, "calls": 1}],
    "RefundCallsRequest": [{"user_id": "user-1", "endpoint": "RunFlow", "date": "2026-03-29", "calls": 1}],
    "SetUserRequest": [{"user": {"user_id": "user-1", "role": "ROLE_USER", "time_zone": "Europe/Berlin"}}],
    "CreateTokenRequest": [{"user_id": "made", "role": "ROLE_USER", "lifetime": "600s", "label": "laptop"}],
    "AnalyzeFlowRequest": [{"definition": {"spec": SPEC}}],
    "RegisterFlowRequest": [
        {"spec": SPEC},
        {
            "spec": {k: v for k, v in SPEC.items() if k != "interval"}
            | {"schedule": {"cron": "* * * * *", "zone": "UTC"}}
        },
    ],
    "SubmitTaskRequest": [
        {
            "user_id": "default",
            "node_type": "fuzz.node",
            "parameters_json": "{}",
            "options": {
                "schedule_to_start": "60s",
                "start_to_close": "60s",
                "concurrency": {"key": "k", "max": 2},
                "rate": {"key": "k", "limit": "5/s", "cost": 1},
                "retry": {},
            },
        }
    ],
    "SubmitBatchRequest": [
        {"head": {"user_id": "default", "node_type": "fuzz.node", "total": 2}, "parameters_json": ["{}", "{}"]}
    ],
    "SubmitComponentsRequest": [SUBMISSION],
    "StreamSubmissionsRequest": [{"number": "7", "request": SUBMISSION}],
    "SaveTriggerRequest": [
        {"trigger": TRIGGER},
        {"trigger": TRIGGER | {"schedule": {"cron": {"expression": "* * * * *", "time_zone": "UTC"}}}},
        {"trigger": TRIGGER | {"schedule": {"event": {"name": "e", "filter_json": "{}"}}}},
    ],
    "RegisterWorkerRequest": [{"worker": WORKER, "node_types": [TYPE]}],
    "WorkRequest": [{"hello": WORKER}],
}


@contextmanager
def fuzzed_stack(data: Path) -> Iterator[FuzzedStack]:
    """Run a whole stack behind a gate in this process, over an embedded store in `data`."""
    store = EmbeddedStore(data, acl_users=ACL_USERS)
    with asyncio.Runner() as runner:
        runner.run(store.start())
        try:
            address = f"127.0.0.1:{free_port()}"
            stack = build_services(
                lambda user: Login(store.url_for(user), user, store.password_of(user)),
                address,
                1,
                single_replica=True,
                service_token=_SECRET,
            )
            server = Server(stack.services, gate=stack.gate, port=int(address.rpartition(":")[2]), drain_s=5)
            runner.run(server.start())
            try:
                calls = FuzzedStack(runner, address)
                calls.open()
                try:
                    yield calls
                finally:
                    calls.close()
            finally:
                runner.run(server.stop())
        finally:
            runner.run(store.stop())
