"""Carrying out offers of mapped nodes: splitting a list into items, and joining their outputs."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import msgspec
import structlog

from tradewind.node_task_manager.domain.fan_out import (
    ERRORS,
    MAX_ITEMS,
    TOO_FEW,
    TOO_LARGE,
    FanOut,
    FanOutOffer,
    FanOutStep,
    StepKind,
)
from tradewind.node_task_manager.domain.limits import OUTPUT_BYTES
from tradewind.node_task_manager.domain.names import TaskName
from tradewind.node_task_manager.domain.node_task import ELSEWHERE, NodeTaskStatus, TaskError
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.use_cases.inputs import wrong_plan
from tradewind.node_task_manager.use_cases.plans import PlanCache
from tradewind.node_task_manager.use_cases.shard import Shard
from tradewind.server.batching import Batcher
from tradewind.server.side_tasks import SideTasks

_log = structlog.get_logger(__name__)
_AT_ONCE = 8
"""How many offers are read side by side; each may hold 1 MiB."""
_MAX_ERRORS, _LONGEST_MESSAGE = 100, 500
_ONLY_OUTPUT = "output"
_items = msgspec.json.Decoder(list[msgspec.Raw]).decode

Outputs = tuple[tuple[str, str], ...]


class FanOuts:
    """Carries out the offers of one shard; an offer that fails is left alone, as it is made anew.

    `store(steps)` takes the resulting steps; steps that come together go in one call.
    """

    def __init__(
        self, shard: Shard, plans: PlanCache, store: Callable[[Sequence[FanOutStep]], Awaitable[Sequence[None]]]
    ) -> None:
        self._shard = shard
        self._plans = plans
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._batcher: Batcher[FanOutStep, None] = Batcher(store, _AT_ONCE)
        self._running = SideTasks()
        self._latest: dict[str, FanOutOffer] = {}
        """The latest offer of each mapped node that waits here, or whose list or results are being read."""

    async def stop(self) -> None:
        """Leave the remaining offers to the process that gets them next."""
        await self._running.end()
        await self._batcher.close()

    def start(self, offers: Sequence[FanOutOffer]) -> None:
        """Begin to carry out offers; one made anew replaces an older one that waits, or is being carried out."""
        for offer in offers:
            under_way = offer.task_id in self._latest
            self._latest[offer.task_id] = offer
            if not under_way:
                self._running.begin(self._carry_out(offer.task_id))

    async def _carry_out(self, task_id: str) -> None:
        try:
            async with self._room:
                try:
                    offer = self._latest[task_id]
                    step = await self._step_of(offer)
                finally:
                    latest = self._latest.pop(task_id)
                # What takes longer than an offer is valid would else begin again and again.
                await self._batcher.submit(replace(step, nonce=latest.nonce) if latest.renews(offer) else step)
        except Exception as error:
            _log.warning("fan_out_postponed", node_task=task_id, error=error)

    async def _step_of(self, offer: FanOutOffer) -> FanOutStep:
        try:
            plan = await self._plans.require(self._shard.plans, offer.plan)
            return await (self._join(offer, plan) if offer.total else self._split(offer, plan))
        except LookupError:
            return _failed(offer, wrong_plan(offer.plan))

    async def _split(self, offer: FanOutOffer, plan: Plan) -> FanOutStep:
        fan_out = plan.nodes[offer.index].fan_out
        assert fan_out is not None
        edge = plan.mapped_edge(offer.index)
        (task,) = await self._shard.reader.tasks([offer.task_id], inputs=True)
        value = dict(task.inputs).get(edge) if task is not None else None
        if value == ELSEWHERE:
            source = plan.nodes[plan.edges[edge].source].node_id
            wanted = (TaskName.parse(offer.task_id).run.task_id(source), plan.edges[edge].source_handle)
            (value,) = await self._shard.reader.outputs([wanted])
        items = split_list(value, fan_out)
        if isinstance(items, TaskError):
            return _failed(offer, items)
        if not items:
            empty = tuple((handle, "[]") for handle in _handles(plan, offer.index) or [_ONLY_OUTPUT])
            return FanOutStep(offer.task_id, offer.nonce, StepKind.COMPLETED, outputs=empty)
        return FanOutStep(offer.task_id, offer.nonce, StepKind.SPLIT, items, fan_out.needed(len(items)))

    async def _join(self, offer: FanOutOffer, plan: Plan) -> FanOutStep:
        ids = [f"{offer.task_id}:{place}" for place in range(offer.total)]
        emitted = [dict(outputs) for outputs in await self._shard.reader.emitted(ids)]
        wanted = _handles(plan, offer.index)
        handles = sorted({*wanted, *(handle for outputs in emitted for handle in outputs)} - {ERRORS})
        outputs = [(handle, f"[{','.join(each.get(handle, 'null') for each in emitted)}]") for handle in handles]
        if offer.losses or ERRORS in wanted:
            silent = [place for place, each in enumerate(emitted) if not each] if offer.losses else []
            outputs.append((ERRORS, await self._losses(ids, silent)))
        # A list of errors that no edge asks for must not fail the node.
        size = sum(len(value.encode()) for handle, value in outputs if handle != ERRORS or ERRORS in wanted)
        if size > OUTPUT_BYTES:
            message = f"the joined results have {size} bytes, the limit is {OUTPUT_BYTES}"
            return _failed(offer, TaskError(TOO_LARGE, f"{message}: return less data, or a reference to it"))
        return FanOutStep(offer.task_id, offer.nonce, StepKind.COMPLETED, outputs=tuple(sorted(outputs)))

    async def _losses(self, ids: Sequence[str], places: Sequence[int]) -> str:
        """Return the first 100 items that did not complete, of those in `places`, as JSON."""
        found: list[dict[str, object]] = []
        for first in range(0, len(places), _MAX_ERRORS):
            some = places[first : first + _MAX_ERRORS]
            for place, task in zip(some, await self._shard.reader.tasks([ids[at] for at in some]), strict=True):
                if task is not None and task.status is not NodeTaskStatus.COMPLETED:
                    error = task.error if task.status is NodeTaskStatus.FAILED else None
                    message = error.message if error else task.reason
                    found.append(
                        {
                            "item": place,
                            "status": task.status.value,
                            "code": error.code if error else "",
                            "type": error.type if error else "",
                            "message": message[:_LONGEST_MESSAGE],
                        }
                    )
            if len(found) >= _MAX_ERRORS:
                break
        return msgspec.json.encode(found[:_MAX_ERRORS]).decode()


def split_list(value: str | None, fan_out: FanOut) -> tuple[str, ...] | TaskError:
    """Return the items of a list as JSON texts, not decoded, or why a node cannot run over it."""
    handle = fan_out.handle
    if value is None:
        return TaskError("INPUT_MISSING", f'no list arrived at input "{handle}", which the node is mapped over')
    try:
        items = _items(value)
    except (msgspec.DecodeError, RecursionError):
        message = f'input "{handle}", which the node is mapped over, must be a list, is {value.lstrip()[:40]}'
        return TaskError("NODE_ERROR", message, "InvalidInput")
    if len(items) > MAX_ITEMS:
        message = f'the list at input "{handle}" has {len(items)} items, over {MAX_ITEMS}: map over parts of it'
        return TaskError("INPUT_TOO_LARGE", message)
    need = fan_out.needed(len(items))
    if items and need > len(items):
        message = f'at least {need} items must complete, but the list at input "{handle}" has only {len(items)}'
        return TaskError(TOO_FEW, message)
    return tuple(bytes(item).decode() for item in items)


def _handles(plan: Plan, index: int) -> list[str]:
    """Return the output handles of a node that edges leave by."""
    return sorted({plan.edges[at].source_handle for at in plan.outputs[index]})


def _failed(offer: FanOutOffer, error: TaskError) -> FanOutStep:
    return FanOutStep(offer.task_id, offer.nonce, StepKind.FAILED, error=error)
