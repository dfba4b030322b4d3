"""An executor under test, and its reports."""

import json
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from tests.waiting import until
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.codec import Codec
from tradewind.testing import LogLine, NodeFailure, NodeRun
from tradewind.worker import Node
from tradewind.worker.coding import CodedRunner
from tradewind.worker.executor import Executor
from tradewind.worker.outputs import Ending
from tradewind.worker.processes.pool import ProcessPool
from tradewind.worker.running import NodeRunner
from tradewind.worker.secrets import SecretResolver, SecretSource
from tradewind.worker.threads import ThreadPool


class Bench:
    """Runs assignments; its reports are in `runs` (by token), `given_back` and `ended` (in order).

    `eager_tokens` has, for each token, the token of the eager node that was begun on its outputs.
    """

    def __init__(
        self,
        nodes: Sequence[Node[..., Any]],
        *,
        secrets: SecretSource | None = None,
        threads: int = 4,
        processes: ProcessPool | None = None,
        codec: Codec | None = None,
        **options: Any,
    ) -> None:
        self.runs: dict[str, NodeRun] = {}
        self.given_back: list[str] = []
        self.ended: list[str] = []
        self.eager_tokens: dict[str, str] = {}
        parts = SecretResolver(secrets), ThreadPool(threads), processes
        runner = NodeRunner(*parts) if codec is None else CodedRunner(codec, *parts)
        self.executor = Executor({node.type: node for node in nodes}, self, runner, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, type: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.executor.close()

    def assignment(self, node_type: str, token: str = "t1", **fields: Any) -> work_pb2.NodeTaskAssignment:
        """Return an assignment of a node of this type."""
        return work_pb2.NodeTaskAssignment(
            token=token, node_task_id=f"flow:0:0:{token}", node_id=token, node_type=node_type, attempt=1, **fields
        )

    async def run(self, assignment: work_pb2.NodeTaskAssignment) -> NodeRun:
        """Start the assignment and return its result."""
        self.executor.start(assignment)
        return await self.end(assignment.token)

    async def end(self, token: str) -> NodeRun:
        """Wait until the attempt is reported."""
        await until(lambda: token in self.ended, f"{token} is reported")
        return self.runs[token]

    def stop(self, token: str = "t1", reason: str = "enough", by: str = "ada", grace: float = 5.0) -> None:
        """Ask a node to stop, as the server does."""
        termination = work_pb2.NodeTaskTermination(token=token)
        termination.stop.reason, termination.stop.by = reason, by
        termination.grace.FromNanoseconds(int(grace * 1e9))
        self.executor.terminate(termination)

    def complete(
        self, token: str, outputs: Ending, duration_ns: int, traceparent: str = "", eager_token: str = ""
    ) -> None:
        assert isinstance(outputs, list), "none of these nodes waits"
        self.eager_tokens[token] = eager_token
        self._run(token).outputs = {handle: json.loads(text) for handle, text in outputs}
        self.ended.append(token)

    def fail(self, failure: work_pb2.NodeTaskFailure) -> None:
        run = self._run(failure.token)
        run.error = NodeFailure.of(failure)
        run.terminated = failure.terminated
        self.ended.append(failure.token)

    def give_back(self, token: str) -> None:
        self.given_back.append(token)

    def progress(self, token: str, percent: int, message: str, step: str) -> None:
        run = self._run(token)
        run.progress.append((percent, message))
        if step and step not in run.steps[-1:]:
            run.steps.append(step)

    def log(self, token: str, level: str, message: str, created_ns: int) -> None:
        self._run(token).logs.append(LogLine(level, message))

    def _run(self, token: str) -> NodeRun:
        return self.runs.setdefault(token, NodeRun())
