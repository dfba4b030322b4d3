"""Maps between Protobuf and the domain: messages to and from workers.

Whatever is parsed holds a token, which must name one of the existing `shards`; else InvalidInput is raised.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.node_task_manager.domain.limits import MAX_AHEAD_MS, OUTPUT_BYTES
from tradewind.node_task_manager.domain.names import TaskName, Token
from tradewind.node_task_manager.domain.node_task import TaskError
from tradewind.node_task_manager.metrics import NODE_SECONDS
from tradewind.node_task_manager.ports.reading import Line, Progress
from tradewind.node_task_manager.ports.work import Held, Outcome, OutcomeKind, Termination
from tradewind.node_task_manager.ports.workers import Ready
from tradewind.node_task_manager.rpc.eager_mapping import step_messages
from tradewind.node_task_manager.rpc.retry_mapping import retry_request
from tradewind.node_task_manager.rpc.stop_mapping import stop_mark
from tradewind.node_task_manager.rpc.waiting_mapping import resumption, wait_order
from tradewind.node_task_manager.use_cases.trace_nodes import TraceNodes
from tradewind.server.faults import InvalidInput, Violation
from tradewind.server.json_depth import check_depth
from tradewind.server.metrics import SWITCH
from tradewind.server.sizes import size_of
from tradewind.server.timestamps import instant_ms, set_timestamp

_LEVELS = {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}
LINE_CHARACTERS = 8192
_json = msgspec.json.Decoder(msgspec.Raw)


def token(text: str, shards: Collection[int], path: str, at: int, field: str = "") -> Token:
    """Parse the token in `path[at]field`. Raises InvalidInput unless it is one, and of one of these shards."""
    try:
        parsed = Token.parse(text)
    except ValueError as error:
        raise InvalidInput([Violation(f"{path}[{at}]{field}", str(error))]) from None
    if parsed.shard not in shards:
        raise InvalidInput([Violation(f"{path}[{at}]{field}", f"names shard {parsed.shard}, which does not exist")])
    return parsed


def held(path: str, tokens: Iterable[str], shards: Collection[int]) -> list[tuple[int, Held]]:
    """Parse tokens of these shards into (shard, held). Raises InvalidInput."""
    parsed = [token(text, shards, path, at) for at, text in enumerate(tokens)]
    return [(each.shard, Held(each.task_id, each.attempt, each.nonce)) for each in parsed]


def token_text(shard: int, of: Held) -> str:
    """Return the token of a lease."""
    return f"{shard}~{of.task_id}~{of.attempt}~{of.nonce}"


def completion(at: int, message: work_pb2.NodeTaskCompletion, shards: Collection[int]) -> tuple[int, Outcome]:
    """Parse a completion into (shard, outcome); outputs that are not JSON or too large, or an invalid wait, make it a
    failure."""
    parsed = token(message.token, shards, "completions", at, ".token")
    if message.HasField("wait"):
        wait = wait_order(message.wait)
        if isinstance(wait, TaskError):
            return parsed.shard, _refused(parsed, wait)
        suspended = OutcomeKind.SUSPENDED
        return parsed.shard, Outcome(parsed.task_id, parsed.attempt, parsed.nonce, suspended, wait=wait)
    # A slice, because a loop over a message's own field costs an IndexError at the end.
    outputs = tuple([(output.handle, output.value_json) for output in message.outputs[:]])
    error = _output_fault(outputs)
    if error is not None:
        return parsed.shard, _refused(parsed, error)
    return parsed.shard, Outcome(parsed.task_id, parsed.attempt, parsed.nonce, OutcomeKind.COMPLETED, outputs)


def _refused(token: Token, error: TaskError) -> Outcome:
    """Return the failure of an attempt that a worker reported as completed."""
    return Outcome(token.task_id, token.attempt, token.nonce, OutcomeKind.FAILED, (), error, unreported=True)


def _output_fault(outputs: Sequence[tuple[str, str]]) -> TaskError | None:
    size = 0
    for handle, value in outputs:
        size += size_of(value)
        try:
            _json.decode(value)
            check_depth(value)
        except (msgspec.DecodeError, RecursionError) as error:
            return TaskError("INVALID_OUTPUT", f'output "{handle}" is not JSON: {error}')
    if len(outputs) > 1 and len(dict(outputs)) < len(outputs):
        ((twice, _),) = Counter(handle for handle, _ in outputs).most_common(1)
        return TaskError("INVALID_OUTPUT", f'output "{twice}" was emitted twice')
    if size > OUTPUT_BYTES:
        return TaskError("OUTPUT_TOO_LARGE", f"the outputs have {size} bytes in total, the limit is {OUTPUT_BYTES}")
    return None


def failure(at: int, message: work_pb2.NodeTaskFailure, shards: Collection[int]) -> tuple[int, Outcome]:
    """Parse a failure into (shard, outcome)."""
    parsed = token(message.token, shards, "failures", at, ".token")
    kind = OutcomeKind.TERMINATED if message.terminated else OutcomeKind.FAILED
    error = TaskError(
        message.error.code[:64] or "NODE_ERROR",
        message.error.message[:4096],
        message.error.type[:256],
        message.error.traceback[:16384],
    )
    return parsed.shard, Outcome(parsed.task_id, parsed.attempt, parsed.nonce, kind, (), error, retry_request(message))


def note_ends(
    traces: TraceNodes | None, messages: Sequence[work_pb2.NodeTaskCompletion | work_pb2.NodeTaskFailure]
) -> None:
    """Note how long nodes took, and in which trace contexts they ended; their tokens are known to be valid."""
    if SWITCH.on:
        for each in messages:
            NODE_SECONDS.observe(max(0.0, each.duration.seconds + each.duration.nanos / 1e9))
    if traces is not None:
        for each in messages:
            if each.traceparent:
                eager_token = each.eager_token if isinstance(each, work_pb2.NodeTaskCompletion) else ""
                traces.reported(_nonce(each.token), each.traceparent, _nonce(eager_token))


def _nonce(token: str) -> str:
    return token.rpartition("~")[2]


def progress(at: int, message: work_pb2.NodeTaskProgress, shards: Collection[int]) -> tuple[int, Progress]:
    """Parse progress into (shard, progress)."""
    parsed = token(message.token, shards, "progress", at, ".token")
    reached = min(100, max(0, message.progress))
    return parsed.shard, Progress(
        parsed.task_id, parsed.nonce, reached, message.message[:1024], message.current_step[:256]
    )


def line(at: int, message: work_pb2.NodeTaskLog, shards: Collection[int]) -> tuple[int, Line]:
    """Parse a log line into (shard, line)."""
    parsed = token(message.token, shards, "logs", at, ".token")
    level = message.level.upper() if message.level.upper() in _LEVELS else "INFO"
    created = max(0, instant_ms(message.created_at))
    return parsed.shard, Line(
        parsed.task_id, parsed.attempt, parsed.nonce, level, "node", message.message[:LINE_CHARACTERS], created
    )


def failure_lines(failures: Iterable[tuple[int, Outcome]]) -> Iterator[tuple[int, Line]]:
    """Yield log lines for failed attempts: the error and its traceback, without the middle if that is long."""
    for shard, outcome in failures:
        if outcome.kind is OutcomeKind.FAILED and outcome.error is not None:
            failed = f"attempt {outcome.attempt} failed: {outcome.error.summary}"
            text = f"{failed}\n{outcome.error.traceback}".rstrip()
            if len(text) > LINE_CHARACTERS:
                text = f"{text[: LINE_CHARACTERS // 2]}\n...\n{text[5 - LINE_CHARACTERS // 2 :]}"
            yield shard, Line(outcome.task_id, outcome.attempt, outcome.nonce, "ERROR", "system", text, 0)


def assignment(ready: Ready, now_ms: int) -> work_pb2.NodeTaskAssignment:
    """Return a node task for a worker, `now_ms` by the store's clock."""
    message = work_pb2.NodeTaskAssignment()
    fill_assignment(message, ready, now_ms)
    return message


def fill_assignment(message: work_pb2.NodeTaskAssignment, ready: Ready, now_ms: int) -> None:
    """Fill in an empty message, as within the one that it belongs to, with a node task for a worker."""
    given, run, node = ready.assignment, ready.run, ready.node
    # Setting fields one by one costs less than keyword arguments, and most other fields are empty.
    task_id, attempt = given.task_id, given.attempt
    message.token = f"{ready.shard}~{task_id}~{attempt}~{given.nonce}"
    message.node_task_id = task_id
    message.run_id = given.run_id
    message.component_id = given.component_id
    message.node_id = node.node_id
    message.node_type = node.node_type
    message.attempt = attempt
    message.user_id = given.user_id
    if run.flow_id:
        message.flow_id = run.flow_id
    if run.cycle:
        message.cycle = run.cycle
    if run.run:
        message.run = run.run
    if node.config_json:
        message.config_json = node.config_json
    if given.run_inputs:
        message.run_inputs_json = given.run_inputs
    if given.traceparent:
        message.traceparent = given.traceparent
    if node.fan_out is not None:
        message.item = TaskName.parse(task_id).item
    if (resumed := resumption(given.resumed)) is not None:
        message.resumed.CopyFrom(resumed)
    if ready.eager.steps:
        message.eager_steps.extend(step_messages(ready.eager))
    for handle, values in ready.inputs:
        added = message.inputs.add()
        added.handle = handle
        added.values_json.extend(values)
    if given.deadline_ms:
        set_timestamp(message.deadline, given.deadline_ms)
    if given.planned_ms:
        set_timestamp(message.planned_time, given.planned_ms)
        ahead_ms = given.planned_ms - now_ms
        if ahead_ms > 0:
            message.start_in.FromMilliseconds(min(ahead_ms, MAX_AHEAD_MS))


def termination(shard: int, asked: Termination, grace_ms: int) -> work_pb2.NodeTaskTermination:
    """Return the request to a worker to stop a node task."""
    message = work_pb2.NodeTaskTermination(token=token_text(shard, asked.held), stop=stop_mark(asked.stop))
    message.grace.FromMilliseconds(grace_ms)
    return message
