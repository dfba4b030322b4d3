"""Why a node task waits, runs, or ended as it did."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from tradewind.node_task_manager.domain.concurrency import limit_text
from tradewind.node_task_manager.domain.limits import Limits
from tradewind.node_task_manager.domain.names import RunName, TaskName
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.plan import PlanNode, RunIf
from tradewind.node_task_manager.domain.sub_flow import sub_flow_wait_text
from tradewind.node_task_manager.domain.system_config import SystemConfig
from tradewind.node_task_manager.domain.waiting import Wait
from tradewind.node_task_manager.ports.connected import ConnectedWorkers
from tradewind.node_task_manager.ports.reading import Place, QueueReader
from tradewind.node_task_manager.use_cases.node_task_records import NodeTaskRecords
from tradewind.node_task_manager.use_cases.task_views import SignalStatus, TaskView
from tradewind.node_task_manager.use_cases.waits import limits_of, no_worker_reason
from tradewind.server.clock import Clock
from tradewind.server.rates import KeyRate, Rate
from tradewind.server.reasons import Fact, Reason, iso, ordered, store_takes_no_writes, waits_for_nodes, workers_busy

_HOLDERS = 10
_SOURCES = 50


class ExplainNodeTask:
    """Finds the reasons in queues and limits, by a bounded number of reads.

    `config(shard)` returns the configuration of a shard, `whole_config()` that of which it has a share; `refusal()`
    says why the store takes no writes, "" if it does.
    """

    def __init__(
        self,
        records: NodeTaskRecords,
        config: Callable[[int], SystemConfig],
        whole_config: Callable[[], SystemConfig],
        connected: ConnectedWorkers,
        refusal: Callable[[], Awaitable[str]],
        clock: Clock,
        limits: Limits,
    ) -> None:
        self._records = records
        self._config = config
        self._whole_config = whole_config
        self._connected = connected
        self._refusal = refusal
        self._clock = clock
        self._limits = limits

    async def __call__(self, task_id: str, user_id: str, *, only_own: bool = False) -> tuple[TaskView, list[Reason]]:
        """Return a node task and the reasons, the most decisive first. Raises NotFound.

        The items of a list do not exist before it is split; until then, their node is explained instead. With
        `only_own`, only the user's node tasks are named among the holders of a limit.
        """
        view = await self._view(task_id, user_id)
        if view.task.status.terminal:
            return view, [await self._skipped(view) if view.task.status is NodeTaskStatus.SKIPPED else _ended(view)]
        reasons = [*store_takes_no_writes(await self._refusal()), *_stop_reasons(view)]
        match view.task.status:
            case NodeTaskStatus.REGISTERED:
                reasons += await self._registered(view)
            case NodeTaskStatus.PENDING:
                reasons += await self._pending(view)
            case NodeTaskStatus.SUSPENDED:
                reasons.append(_suspended(view.task))
            case NodeTaskStatus.RUNNING:
                reasons += self._running(view)
        if only_own:
            reasons = [await self._without_others(each, user_id) for each in reasons]
        return view, ordered(reasons)

    async def _skipped(self, view: TaskView) -> Reason:
        """Return why it was skipped, and whether that was only because its `run_if` wants a value from every edge."""
        task, at = view.task, iso(view.task.ended_at)
        text = f"was skipped at {at}: {task.reason}"
        facts: dict[str, Fact] = {"at": at, "why": task.reason}
        if view.node.run_if is RunIf.ALL_SUCCEEDED and not (task.stop or view.component.stop):
            signals = await self._records.signals([view], view.component.user_id)
            live, edges = sum(each.status is SignalStatus.LIVE for each in signals), len(signals)
            if 0 < live < edges:
                text += (
                    f'; {live} of its {edges} edges brought a value, with "run_if": "any_succeeded" it would have run'
                )
                facts |= {"edges": edges, "values": live}
        return Reason("skipped", text, facts)

    async def _view(self, task_id: str, user_id: str) -> TaskView:
        # The node is read first: read after the item, it could have been split in between.
        if mapped := TaskName.parse(task_id).mapped:
            view = await self._records.node_task(mapped, user_id)
            if view.is_mapped and view.items is None:
                return view
        return await self._records.node_task(task_id, user_id)

    async def _without_others(self, reason: Reason, user_id: str) -> Reason:
        holders = reason.facts.get("holders")
        if not isinstance(holders, list):
            return reason
        found = await self._records.on_record(holders, user_id)
        own = [each for each in holders if each in found and found[each].component.user_id == user_id]
        return replace(reason, facts={**reason.facts, "holders": own})

    async def _registered(self, view: TaskView) -> list[Reason]:
        if view.component.withheld:
            return [Reason("withheld", view.wait_reason, {"cycle": view.component.run.cycle})]
        fan_out = view.node.fan_out
        if fan_out is not None and not view.is_mapped:
            return [Reason("waits_for_items", view.wait_reason, {"max_parallel": fan_out.max_parallel})]
        user_id = view.component.user_id
        signals = await self._records.signals([view], user_id)
        waiting = list(dict.fromkeys(each.source for each in signals if each.status is SignalStatus.WAITING))
        if not waiting:
            return []
        ids = [view.component.run.task_id(node_id) for node_id in waiting[:_SOURCES]]
        tasks = await self._records.shard(user_id).reader.tasks(ids)
        found = dict(zip(waiting, (task.status.value if task else "registered" for task in tasks), strict=False))
        return [waits_for_nodes(found)]

    async def _pending(self, view: TaskView) -> list[Reason]:
        task, node, user_id = view.task, view.node, view.component.user_id
        if task.retry_at:
            return [_retry(task, node)]
        if view.is_mapped:
            return [Reason("items_open", "its list is about to be split", {"begun": 0, "total": 0})]
        shard = self._records.shard(user_id)
        queues, config = shard.queues, self._config(shard.number)
        unoffered = await self._connected.unoffered([node.node_type])
        reasons = [no_worker_reason(node.node_type, last) for last in unoffered.values()]
        if task.blocked:
            most = _own_limit(task.blocked, view, config)
            return [*reasons, await self._limit(queues, task.blocked, most, most, view)]
        whole = self._whole_config()
        totals = limits_of(view, whole)
        for name, most in limits_of(view, config).items():
            if name.startswith("rate:"):
                rate = config.rates[node.node_type]
                refill = await self._refill(queues, name, rate, whole.rates.get(node.node_type, rate), 1)
                reasons += [refill] if refill is not None else []
            elif (await queues.holders(name, 0)).count >= most:
                reasons.append(await self._limit(queues, name, most, totals.get(name, most), view))
        if not reasons:
            reasons.append(workers_busy(node.node_type))
        place = await queues.place(node.node_type, user_id, task.task_id)
        return [*reasons, _queued(place, node.node_type, user_id, task)]

    async def _limit(self, queues: QueueReader, name: str, most: int, total: int, view: TaskView) -> Reason:
        """Return that a limit is full, which lets `most` of `total` run in this shard."""
        node = view.node
        if name.startswith("pace:"):
            rate = node.rate or KeyRate("", Rate(1, 1000))
            refill = await self._refill(queues, name, rate.rate, rate.rate, rate.cost)
            return refill or Reason("rate_limited", f"waits: {limit_text(name)}", {"limit": name})
        holders = await queues.holders(name, _HOLDERS)
        used = f" ({holders.count} of {most}{_share_text(most, total)})"
        usage = used if most else "; the limit has just been removed"
        return Reason(
            "limit_full",
            f"waits: {limit_text(name)}{usage}",
            {"limit": name, "held": holders.count, "most": most, "total": total, "holders": list(holders.task_ids)},
        )

    async def _refill(self, queues: QueueReader, name: str, rate: Rate, total: Rate, cost: int) -> Reason | None:
        """Return that `cost` tokens of this shard's share of a rate are missing and when there are enough, if so."""
        (full_in_us,) = await queues.held([name])
        missing_us = full_in_us + cost * rate.interval_us - rate.period_us
        if missing_us <= 0:
            return None
        at = iso(self._clock.now_ms() + missing_us // 1000 + 1)
        text = f"waits: {limit_text(name)}; the rate {rate} allows it at {at}{_share_text(rate, total)}"
        facts: dict[str, Fact] = {"limit": name, "rate": str(rate), "total": str(total), "cost": cost, "refills_at": at}
        return Reason("rate_limited", text, facts)

    def _running(self, view: TaskView) -> list[Reason]:
        task = view.task
        if task.items is not None:
            items = task.items
            text = f"{items.ended} of its {items.total} items have ended, {items.begun} have begun"
            return [Reason("items_open", text, {"total": items.total, "begun": items.begun, "ended": items.ended})]
        facts: dict[str, Fact] = {
            "worker_id": task.worker_id,
            "since": iso(task.started_at),
            "attempt": task.attempt,
            "progress": task.progress,
        }
        if self._is_unconfirmed(task, view.node):
            text = f"given to worker {task.worker_id} at {iso(task.started_at)}, which has not confirmed it yet"
            return [Reason("worker_unconfirmed", text, {**facts, "lease_deadline": iso(task.lease_deadline)})]
        text = f"has been running on worker {task.worker_id} since {iso(task.started_at)}"
        return [Reason("running", text + (f", at {task.progress} %" if task.progress else ""), facts)]

    def _is_unconfirmed(self, task: NodeTask, node: PlanNode) -> bool:
        """Say whether its worker has not confirmed it yet.

        A renewal confirms it: it names what is held and extends the lease. That does not show if the lease ends with
        the time allowed for the attempt, or with that to stop.
        """
        first_ms = min(self._limits.lease_ms, node.heartbeat_ms or self._limits.lease_ms)
        if task.stop or node.total_ms or 0 < node.start_to_close_ms <= first_ms:
            return False
        since_ms = self._clock.now_ms() - task.started_at
        return task.lease_deadline <= task.started_at + first_ms and since_ms >= self._limits.unnamed_ms


def _stop_reasons(view: TaskView) -> list[Reason]:
    stop = view.task.stop or view.component.stop
    if stop is None:
        return []
    facts = {"by": stop.by, "why": stop.reason, "since": iso(stop.at)}
    return [Reason("stopping", f'"{stop.by}" asked it to stop at {iso(stop.at)}: {stop.reason}', facts)]


def _suspended(task: NodeTask) -> Reason:
    wait, until = task.wait, iso(task.retry_at)
    assert wait is not None
    if wait.flow_id:
        return _sub_flow_wait(wait, task.child)
    ways = []
    if wait.title:
        ways.append(f'for an answer to "{wait.title}"')
    elif wait.signal:
        ways.append(f'for the signal "{wait.signal}"')
    if until:
        ways.append(f"until {until}")
    since = iso(wait.since)
    text = f"has been suspended since {since} and waits {' or '.join(ways)}"
    if wait.title or wait.signal:
        text += f"; {'answer' if wait.title else 'send'} it with: {_answering(task.task_id, bool(wait.title))}"
    return Reason("suspended", text, {"since": since, "signal": wait.signal, "title": wait.title, "until": until})


def _answering(task_id: str, asks: bool) -> str:
    """Return the command that ends the wait of a node task, which may ask a person."""
    flow_id, *place = task_id.split(":", 3)
    if not asks or len(place) < 3:
        return f"tradewind task signal {task_id}"
    cycle, _, node = place
    return f"tradewind cycle approve {flow_id} {cycle} {node}"


def _sub_flow_wait(wait: Wait, child: str) -> Reason:
    facts: dict[str, Fact] = {"since": iso(wait.since), "flow_id": wait.flow_id}
    if child:
        facts["cycle"] = RunName.of_cycle(child).cycle
    return Reason("waits_for_flow", sub_flow_wait_text(wait.flow_id, child), facts)


def _retry(task: NodeTask, node: PlanNode) -> Reason:
    at = iso(task.retry_at)
    if task.waits_for_same_work:
        text = f"waits for another node task that does the same work, until {at} at the latest"
        return Reason("waits_for_same_work", text, {"at": at})
    attempts = node.retry.attempts if node.retry else 1
    error = task.error
    cause = f"; the last one failed: {error.summary}" if error else ""
    return Reason(
        "retry_at",
        f"attempt {task.failures + 1} of {attempts} begins at {at}{cause}",
        {
            "at": at,
            "attempt": task.failures + 1,
            "attempts": attempts,
            "error_code": error.code if error else "",
            "error_message": error.message if error else "",
        },
    )


def _share_text(share: int | Rate, total: int | Rate) -> str:
    """Say that a limit or rate is only the part of one shard, "" if it is not."""
    return "" if share == total else f"; this shard has a share of the {total} of all shards"


def _own_limit(name: str, view: TaskView, config: SystemConfig) -> int:
    """Return how many node tasks run under a limit that holds back single node tasks, 0 if it has just been removed: a
    replica that does not know it yet still goes by the old one."""
    node = view.node
    kind = name.partition(":")[0]
    if kind == "flow":
        return min((most for most in (view.plan.max_running, config.max_running_per_flow) if most), default=0)
    if kind == "adhoc":
        return config.max_concurrent_tasks
    return node.concurrency.most if node.concurrency else 0


def _queued(place: Place, node_type: str, user_id: str, task: NodeTask) -> Reason:
    before = max(place.before, 0)
    nodes = f"{before} node task{'' if before == 1 else 's'}"
    text = f"has been queued since {iso(task.ready_at)}, behind {nodes} of user {user_id}"
    if place.other_users:
        text += f", who takes turns with {place.other_users} other user{'s' if place.other_users > 1 else ''}"
    return Reason(
        "queued",
        text,
        {
            "node_type": node_type,
            "user_id": user_id,
            "since": iso(task.ready_at),
            "position": place.before + 1,
            "queued": place.queued,
            "other_users": place.other_users,
        },
    )


def _ended(view: TaskView) -> Reason:
    task, at = view.task, iso(view.task.ended_at)
    if task.status is NodeTaskStatus.COMPLETED:
        return Reason("completed", f"completed at {at}", {"at": at, "attempt": task.attempt})
    if task.status is NodeTaskStatus.FAILED and task.error is not None:
        error = task.error
        facts: dict[str, Fact] = {"at": at, "attempt": task.attempt, "error_code": error.code, "final": error.final}
        # A node that runs over a list has no attempts of its own.
        which = f" in attempt {task.attempt}" if task.attempt else ""
        text = f"failed at {at}{which}: {error.summary}"
        spent = error.final.startswith("RETRY_BUDGET_EXHAUSTED")
        return Reason(
            "retry_budget_spent" if spent else "failed",
            text + (f"; {error.final}" if error.final else ""),
            {**facts, "error_message": error.message},
        )
    stop = task.stop
    facts = {"at": at, "why": task.reason, "by": stop.by if stop else ""}
    return Reason("stopped", f"was stopped at {at}: {task.reason}", facts)
