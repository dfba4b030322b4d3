"""Taking ad-hoc tasks and batches."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from tradewind.node_task_manager.domain.ad_hoc import AdHocWork
from tradewind.node_task_manager.domain.batch import ONLY_COMPONENT
from tradewind.node_task_manager.domain.component import SubmitOutcome, SubmitResult
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.ports.workers import NodeTypes
from tradewind.node_task_manager.use_cases.check_parameters import work_faults
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.plans import PlanCache
from tradewind.node_task_manager.use_cases.shard import of_user
from tradewind.server.faults import Conflict, Exhausted, Fault, InvalidInput, NotFound, Unavailable, Violation
from tradewind.server.identifiers import new_run_id
from tradewind.server.large_work import in_thread_if

_LARGE = 200
"""With more items than this, work is handled in a thread."""
_MAX_STORED = 10_000


@dataclass(frozen=True, slots=True)
class Accepted:
    """The run of the work, whether it existed before, and warnings for people."""

    run: RunName
    duplicate: bool
    warnings: tuple[str, ...]


class SubmitAdHoc:
    """Makes a plan of the work and a run of the plan; the store takes all of it or nothing."""

    def __init__(
        self, dispatchers: Mapping[int, Dispatcher], plans: PlanCache, node_types: NodeTypes, limits: Limits
    ) -> None:
        self._dispatchers = dispatchers
        self._plans = plans
        self._node_types = node_types
        # As long as the records of a run that ends as soon as it is submitted, and a little more.
        self._keep_ms = limits.retention_ms + limits.tombstone_ms
        self._stored_for_s = limits.tombstone_ms / 1000 / 2
        self._stored: dict[tuple[int, str], float] = {}
        """Plans by shard and digest, until when they need not be stored again."""

    async def __call__(
        self, work: AdHocWork, *, require_worker: bool, unreadable: Mapping[int, Violation] | None = None
    ) -> Accepted:
        """Submit work, with its parameters checked against what live workers have declared of its node type.

        `unreadable` has, by place, the faults of items that are no JSON object; None marks work that was accepted
        before, and is not checked. Raises InvalidInput with every fault of the parameters, NotFound when nobody offers
        the node type although a worker is required, Conflict when the request id was used for other work, Exhausted
        when too much is waiting, Unavailable when a worker is required but the registry cannot be asked.
        """
        dispatcher = of_user(self._dispatchers, work.user_id)
        run, large = work.run(new_run_id()), len(work.parameters) > _LARGE
        offered = await self._node_types.offered(work.node_type)
        if require_worker and not offered and not await self._was_submitted(dispatcher, run, work):
            if offered is None:
                raise Unavailable(
                    "PEER_UNAVAILABLE", "the registry cannot say whether a live worker offers the node type"
                )
            hint, named = await self._node_types.hint(work.node_type), {"node_type": work.node_type}
            raise NotFound("node type", work.node_type, hint=hint, metadata=named)
        if unreadable is not None:
            declaration = await self._node_types.declared(work.node_type)
            faults = await in_thread_if(large, work_faults, work, declaration, unreadable)
            if faults and not await self._was_submitted(dispatcher, run, work):
                raise InvalidInput(faults)
        dispatcher.require_room()
        plan = await in_thread_if(large, _prepared_plan, work, run)
        result = await self._store(dispatcher, work, run, plan)
        duplicate = result.outcome is SubmitOutcome.DUPLICATE
        if not duplicate and result.outcome is not SubmitOutcome.ACCEPTED:
            raise _refusal(work, result.outcome)
        if offered is not False:
            return Accepted(run, duplicate, ())
        waits = f'no live worker offers node type "{work.node_type}"; it waits until one does'
        return Accepted(run, duplicate, (waits + await self._node_types.hint(work.node_type),))

    async def _store(self, dispatcher: Dispatcher, work: AdHocWork, run: RunName, plan: Plan) -> SubmitResult:
        """Store the plan, unless it was stored recently, then the run; store a plan that the store has lost again."""
        self._plans.put(plan)
        name, now = (dispatcher.shard.number, plan.digest), time.monotonic()
        if now < self._stored.get(name, 0.0):
            (result,) = await dispatcher.submit([work.submission(run)])
            if result.outcome is not SubmitOutcome.PLAN_UNKNOWN:
                return result
        await dispatcher.shard.plans.save(plan, self._keep_ms)
        if len(self._stored) >= _MAX_STORED:
            self._stored.clear()
        self._stored[name] = now + self._stored_for_s
        (result,) = await dispatcher.submit([work.submission(run)])
        return result

    async def _was_submitted(self, dispatcher: Dispatcher, run: RunName, work: AdHocWork) -> bool:
        """Say whether this very work was submitted before: then it gets the same answer again."""
        if not work.request_id:
            return False
        (component,) = await dispatcher.shard.reader.components([(run, ONLY_COMPONENT)])
        return component is not None and component.plan == work.plan_digest(run)


def _refusal(work: AdHocWork, outcome: SubmitOutcome) -> Fault:
    match outcome:
        case SubmitOutcome.RUN_CONFLICT:
            what = "batch" if work.batch else "task"
            message = f'request_id "{work.request_id}" was used for another {what}'
            return Conflict("REQUEST_ID_REUSED", message, {"request_id": work.request_id})
        case SubmitOutcome.QUEUE_FULL:
            return Exhausted("QUEUE_FULL", "too many of your node tasks are waiting; submit it again later")
    return Unavailable("STORE_UNAVAILABLE", f"the store refused it ({outcome}); submit it again")


def _prepared_plan(work: AdHocWork, run: RunName) -> Plan:
    """Return the plan of work, with everything derived from it that storing and reading need."""
    plan = work.plan(run)
    _ = plan.inputs, plan.outputs, plan.entries, plan.place
    return plan
