"""Runs one node in a test exactly as a worker does: from JSON to arguments, and from its result to JSON."""

import asyncio
import copy
import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from tradewind.api.node_task_manager.v1 import node_task_pb2, work_pb2
from tradewind.flow.json_text import encode_json
from tradewind.testing.memory import FakeMemory
from tradewind.worker import Node, Resumed
from tradewind.worker.executor import Executor
from tradewind.worker.outputs import Ending
from tradewind.worker.running import NodeRunner
from tradewind.worker.secrets import SecretResolver
from tradewind.worker.threads import ThreadPool
from tradewind.worker.waiting import Suspension

_TOKEN = "test"


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line that the node logged."""

    level: str
    """As `ctx.log` takes it: debug, info, warning, error or critical."""
    message: str


@dataclass(frozen=True, slots=True)
class NodeFailure:
    """Why the node did not succeed, as its node task would show it."""

    code: str
    """As for `NodeTaskError` in the contract: NODE_ERROR, INPUT_MISSING, ...; empty when it was stopped."""
    message: str
    type: str = ""
    traceback: str = ""
    retry_after: timedelta | None = None
    """The delay that RetryLater asked for."""
    non_retryable: bool = False
    """Whether another attempt would not help: Fatal, or unsuitable inputs or config."""

    @classmethod
    def of(cls, failure: work_pb2.NodeTaskFailure) -> Self:
        """Return what a worker's report of a failure says."""
        error = failure.error
        after = failure.retry_after.ToTimedelta() if failure.HasField("retry_after") else None
        return cls(error.code, error.message, error.type, error.traceback, after, failure.non_retryable)


@dataclass(frozen=True, slots=True)
class NodeWait:
    """The wait that the node returned."""

    signal: str
    until: datetime | None
    """The time until which it waits, if it gave one."""
    delay: timedelta | None
    """How long it waits, if it said so."""
    form: Any
    """The form shown to a person, after conversion to JSON; None for no form."""
    completes: bool

    @classmethod
    def of(cls, suspension: Suspension) -> Self:
        """Return what a worker's report of a wait says."""
        until = datetime.fromtimestamp(suspension.until_ms / 1000, UTC) if suspension.until_ms else None
        delay = timedelta(milliseconds=suspension.delay_ms) if suspension.delay_ms >= 0 else None
        form = json.loads(suspension.form_json) if suspension.form_json else None
        return cls(suspension.signal, until, delay, form, bool(suspension.completes))


@dataclass(slots=True)
class NodeRun:
    """The results of one run of a node."""

    outputs: dict[str, Any] = field(default_factory=dict)
    """Emitted values by handle, as the next node gets them from JSON."""
    logs: list[LogLine] = field(default_factory=list)
    progress: list[tuple[int, str]] = field(default_factory=list)
    """Percent and message of each report."""
    steps: list[str] = field(default_factory=list)
    """The steps that the node reported, in order."""
    error: NodeFailure | None = None
    wait: NodeWait | None = None
    """What it waits for, if it returned a Wait."""
    terminated: bool = False
    """Whether it ended because it was asked to stop."""
    cycle_memory: dict[str, Any] = field(default_factory=dict)
    """The variables of its cycle afterwards."""
    flow_memory: dict[str, Any] = field(default_factory=dict)
    """The variables of its flow afterwards."""
    result: Any = None
    """The result that it set for its cycle."""

    @property
    def output(self) -> Any:
        """The value of the only emitted handle. Raises AssertionError, with what happened, unless there is one."""
        if len(self.outputs) != 1:
            raise AssertionError(f"expected one output, got {self.outputs or self.error}")
        return next(iter(self.outputs.values()))


class _Recorder:
    """Takes the reports of a single attempt."""

    def __init__(self) -> None:
        self.run = NodeRun()

    def complete(
        self, token: str, ending: Ending, duration_ns: int, traceparent: str = "", eager_token: str = ""
    ) -> None:
        if isinstance(ending, Suspension):
            self.run.wait = NodeWait.of(ending)
            return
        self.run.outputs = {handle: json.loads(text) for handle, text in ending}

    def fail(self, failure: work_pb2.NodeTaskFailure) -> None:
        self.run.error = NodeFailure.of(failure)
        self.run.terminated = failure.terminated

    def give_back(self, token: str) -> None:
        raise AssertionError("a node is not given back in a test")

    def progress(self, token: str, percent: int, message: str, step: str) -> None:
        self.run.progress.append((percent, message))
        if step and step not in self.run.steps[-1:]:
            self.run.steps.append(step)

    def log(self, token: str, level: str, message: str, created_ns: int) -> None:
        self.run.logs.append(LogLine(level.lower(), message))


async def run_node(
    node: Node[..., Any],
    /,
    *,
    config: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    facts: Mapping[str, Any] | None = None,
    stop: str | None = None,
    resumed: Resumed | None = None,
    cycle_memory: Mapping[str, Any] | None = None,
    flow_memory: Mapping[str, Any] | None = None,
    **inputs: Any,
) -> NodeRun:
    """Run `node` once with `inputs` by handle and return the results; its errors are in the result, not raised.

    Values pass through JSON and are converted and checked as in a worker. A `Gather` handle takes a list with one value
    per edge. `secrets` gives the values of the config's secret references by name; `facts` sets what the Context tells
    (flow_id, cycle, attempt, planned_time, ...). With `stop`, the node is asked to stop for that reason as soon as it
    has begun: an async node at its first wait, a plain function through `ctx.stop_requested`. `resumed` is what ended
    its wait, for a node that continues after one. `cycle_memory` and `flow_memory` are the variables that it finds; the
    result has them as they are afterwards. A node with `process=True` runs in the test's own process. Raises TypeError
    if `node` is not a node and for facts and handles that cannot be as given, ValueError for values that JSON cannot
    express.
    """
    if not isinstance(node, Node):
        raise TypeError(f"run_node needs a node, but {node!r} is not one: decorate the function with @node(...)")
    for name, value, kind in (("stop", stop, str), ("resumed", resumed, Resumed)):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"{name} must be a {kind.__name__}, not {value!r:.80}")
    recorder = _Recorder()
    secret_values = dict(secrets or {})
    runner = NodeRunner(SecretResolver(secret_values.get), ThreadPool(1))
    memories = FakeMemory(cycle_memory or {}, flow_memory or {})
    node_copy = copy.copy(node)
    executor = Executor({node.type: node_copy}, recorder, runner, memories=memories)
    try:
        assignment = _assignment(node, config or {}, facts or {}, inputs)
        if resumed is not None:
            assignment.resumed.signal, assignment.resumed.by = resumed.signal, resumed.by
            assignment.resumed.payload_json = _json(resumed.payload, "the payload")
            assignment.resumed.at.FromDatetime(resumed.at)
        if stop is not None:
            mark = node_task_pb2.StopMark(reason=stop, by="test")
            terminate = functools.partial(executor.terminate, work_pb2.NodeTaskTermination(token=_TOKEN, stop=mark))
            loop = asyncio.get_running_loop()

            def begun(**arguments: Any) -> Any:
                loop.call_soon_threadsafe(terminate)
                return node.function(**arguments)

            node_copy.function = begun
        executor.start(assignment)
        await executor.wait_idle()
    finally:
        await executor.close()
    run = recorder.run
    run.cycle_memory, run.flow_memory, run.result = memories.cycle, memories.flow, memories.result
    return run


def _assignment(
    node: Node[..., Any], config: Mapping[str, Any], facts: Mapping[str, Any], inputs: Mapping[str, Any]
) -> work_pb2.NodeTaskAssignment:
    assignment = work_pb2.NodeTaskAssignment(
        token=_TOKEN,
        flow_id="test",
        node_id=node.type,
        node_type=node.type,
        run_id="test",
        component_id="0",
        attempt=1,
        user_id="default",
        config_json=_json(config, "config"),
    )
    assignment.planned_time.FromDatetime(datetime.now(UTC))
    for name, value in facts.items():
        if name not in work_pb2.NodeTaskAssignment.DESCRIPTOR.fields_by_name:
            raise TypeError(f"the context has no fact {name}")
        try:
            if isinstance(value, datetime):
                getattr(assignment, name).FromDatetime(value)
            else:
                setattr(assignment, name, value)
        except (AttributeError, TypeError, ValueError):
            raise TypeError(f"the fact {name} cannot be {value!r:.80}") from None
    item = f":{assignment.item}" if assignment.HasField("item") else ""
    assignment.node_task_id = assignment.node_task_id or (
        f"{assignment.flow_id}:{assignment.cycle}:{assignment.run}:{assignment.node_id}{item}"
    )
    gathering = {parameter.name for parameter in node.signature.parameters if parameter.gather}
    for handle, value in inputs.items():
        values = _gathered(value, handle) if handle in gathering else [value]
        assignment.inputs.add(handle=handle, values_json=[_json(each, handle) for each in values])
    return assignment


def _gathered(values: Any, handle: str) -> Iterable[Any]:
    if not isinstance(values, Iterable) or isinstance(values, str | Mapping):
        raise TypeError(f"{handle} gathers: give it a list with one value for each edge, not {values!r:.80}")
    return values


def _json(value: Any, what: str) -> str:
    return encode_json(value, what).decode()
