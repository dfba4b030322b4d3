"""Work outside any flow: an ad-hoc task, or the items of a batch, as a run of one component."""

from dataclasses import dataclass
from functools import cached_property

from tradewind.node_task_manager.domain.batch import NO_PARTITION, ONLY_COMPONENT
from tradewind.node_task_manager.domain.caching import CacheUse
from tradewind.node_task_manager.domain.component import RunSubmission
from tradewind.node_task_manager.domain.concurrency import Concurrency
from tradewind.node_task_manager.domain.digests import digest_of
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import START_TO_CLOSE_MS, Plan, PlanNode
from tradewind.node_task_manager.domain.retry import RetryPolicy
from tradewind.server.rates import KeyRate

_ID_LENGTH = 20


@dataclass(frozen=True)
class AdHocWork:
    """One node type to run with each of `parameters` (JSON text, "" for none); times in ms, 0 for none.

    The nodes of a batch are named by their places; a task has one node, without a name.
    """

    user_id: str
    node_type: str
    parameters: tuple[str, ...]
    batch: bool = False
    request_id: str = ""
    schedule_to_start_ms: int = 0
    start_to_close_ms: int = START_TO_CLOSE_MS
    heartbeat_ms: int = 0
    total_ms: int = 0
    retry: RetryPolicy | None = None
    priority: int = 0
    concurrency: Concurrency | None = None
    rate: KeyRate | None = None
    traceparent: str = ""
    cache: CacheUse | None = None

    @cached_property
    def digest(self) -> str:
        """Hex SHA-256 of the work, whoever asks for it."""
        clocks = (self.schedule_to_start_ms, self.start_to_close_ms, self.heartbeat_ms, self.total_ms)
        # Limits that are not set are left out, so that requests from earlier versions keep their digest.
        limits = [str(limit) for limit in (self.concurrency, self.rate, self.cache) if limit is not None]
        options = (*map(str, clocks), str(self.retry), str(self.priority), *limits)
        return digest_of(("batch" if self.batch else "task", self.node_type, *options, *self.parameters))

    def run(self, fresh_id: str) -> RunName:
        """Return the run's name: derived from the request id if there is one, else from `fresh_id`."""
        kind = "batch" if self.batch else "task"
        id = digest_of((kind, self.user_id, self.request_id))[:_ID_LENGTH] if self.request_id else fresh_id
        return RunName.of_batch(id) if self.batch else RunName.of_task(id)

    def plan_digest(self, run: RunName) -> str:
        """Return the digest of its plan. A batch has a plan of its own, which goes with it; tasks share theirs."""
        return digest_of((self.digest, str(run))) if self.batch else self.digest

    def plan(self, run: RunName) -> Plan:
        """Return its plan as the run `run`: nodes without edges."""
        nodes = tuple(
            PlanNode(
                str(place) if self.batch else "",
                self.node_type,
                parameters,
                schedule_to_start_ms=self.schedule_to_start_ms,
                start_to_close_ms=self.start_to_close_ms,
                heartbeat_ms=self.heartbeat_ms,
                total_ms=self.total_ms,
                retry=self.retry,
                priority=self.priority,
                concurrency=self.concurrency,
                rate=self.rate,
                cache=self.cache,
            )
            for place, parameters in enumerate(self.parameters)
        )
        return Plan(self.plan_digest(run), nodes, ())

    def submission(self, run: RunName) -> RunSubmission:
        """Return the run to submit; its run id tells different payloads under the same name apart."""
        return RunSubmission(
            run=run,
            run_id=self.digest[:_ID_LENGTH],
            user_id=self.user_id,
            components=((ONLY_COMPONENT, self.plan_digest(run)),),
            partition=NO_PARTITION,
            traceparent=self.traceparent,
            node_type=self.node_type,
        )
