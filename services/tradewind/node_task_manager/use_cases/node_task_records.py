"""Reading node tasks, components, signals and logs."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from tradewind.node_task_manager.domain.batch import ONLY_COMPONENT, place_of_item
from tradewind.node_task_manager.domain.component import Component
from tradewind.node_task_manager.domain.names import RunName, TaskName
from tradewind.node_task_manager.domain.node_task import NodeTask, NodeTaskStatus
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.ports.reading import StoredLine
from tradewind.node_task_manager.use_cases.items import read_items
from tradewind.node_task_manager.use_cases.plans import PlanCache
from tradewind.node_task_manager.use_cases.shard import Shard, by_shard, of_user
from tradewind.node_task_manager.use_cases.task_views import SignalStatus, SignalView, TaskView
from tradewind.node_task_manager.use_cases.waits import ExplainPending
from tradewind.server.faults import NotFound
from tradewind.server.paging import Page

ANSWER_BYTES = 2 * 1024 * 1024
"""The approximate size limit of an answer, unless a single entry is larger."""
_PIECE = 16
"""How many records with outputs are read at once; each may hold 1 MiB."""


Emitted: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]
"""A node task and its emitted values, by handle."""
Lines: TypeAlias = tuple[list[StoredLine], bool]
"""Lines, and whether there are more."""


class HeldPlace(NamedTuple):
    """The place of a node task in the list of those that a worker holds."""

    shard: int
    task_id: str


class NodeTaskRecords:
    """Reads node tasks over all shards."""

    def __init__(self, shards: Mapping[int, Shard], plans: PlanCache, explain: ExplainPending) -> None:
        self._shards = shards
        self._explain = explain
        self._plans = plans

    def shard(self, user_id: str) -> Shard:
        """Return the shard of a user."""
        return of_user(self._shards, user_id)

    async def components(self, run: RunName, user_id: str) -> list[Component]:
        """Return a run's components."""
        return await self.components_of([(run, user_id, ())])

    async def components_of(self, runs: Iterable[tuple[RunName, str, Sequence[str]]]) -> list[Component]:
        """Return components of many runs, each given with its user and ids (none for all); unknown ones are left out.

        There are few round trips to each shard.
        """
        wanted: list[tuple[int, tuple[RunName, str]]] = []
        for run, user_id, ids in runs:
            shard = self.shard(user_id)
            wanted += [(shard.number, (run, each)) for each in ids or await shard.reader.component_ids(run)]
        reads = (self._shards[number].reader.components(names) for number, names in by_shard(wanted).items())
        return [component for found in await asyncio.gather(*reads) for component in found if component is not None]

    async def node_task(self, task_id: str, user_id: str, *, outputs: bool = False) -> TaskView:
        """Return one node task. Raises NotFound."""
        name = TaskName.parse(task_id)
        if name.run.ad_hoc:
            return await self.ad_hoc_task(name, user_id, outputs=outputs)
        owner, found = await self._owner(name.run, user_id, name.node_id), list[TaskView]()
        if owner is not None and name.item >= 0:
            found = await self._items(*owner, name.node_id, [name.item], outputs=outputs)
        elif owner is not None:
            found = await self._views(*owner, [name.node_id], outputs=outputs)
        if not found:
            raise NotFound("node task", task_id)
        return found[0]

    async def ad_hoc_task(self, name: TaskName, user_id: str, *, outputs: bool) -> TaskView:
        """Return the node task of an ad-hoc task, or of an item of a batch. Raises NotFound."""
        shard, task_id, plan = self.shard(user_id), name.run.task_id(name.node_id), None
        (component,), (task,) = await asyncio.gather(
            shard.reader.components([(name.run, ONLY_COMPONENT)]), shard.reader.tasks([task_id], outputs=outputs)
        )
        place = place_of_item(name.node_id)
        if component is not None and place is not None and place < component.nodes:
            plan = await self._plans.find(shard.plans, component.plan, place)
        if component is None or place is None or plan is None:
            raise NotFound("node task", task_id)
        (view,) = await self._explain(shard, [TaskView(task or _not_reached(component, plan, place), component, plan)])
        return view

    async def outputs(self, wanted: Sequence[tuple[str, str]]) -> list[Emitted]:
        """Return what node tasks (id, user) emitted, in order; stop before the answer is too large."""
        page: Page[Emitted] = Page(len(wanted), ANSWER_BYTES)
        for first in range(0, len(wanted), _PIECE):
            for emitted in await self._emitted(wanted[first : first + _PIECE]):
                if not page.add(emitted, sum(len(value.encode()) for _, value in emitted[1])):
                    return page.items
        return page.items

    async def _emitted(self, wanted: Sequence[tuple[str, str]]) -> list[Emitted]:
        ids = by_shard((self.shard(user_id).number, task_id) for task_id, user_id in wanted)
        found: dict[str, tuple[tuple[str, str], ...]] = {}
        for number, mine in ids.items():
            found.update(zip(mine, await self._shards[number].reader.emitted(mine), strict=True))
        return [(task_id, found[task_id]) for task_id, _ in wanted]

    async def node_tasks(
        self,
        run: RunName,
        user_id: str,
        after: int,
        limit: int,
        *,
        outputs: bool,
        config: bool = False,
        only: Sequence[str] = (),
    ) -> tuple[list[TaskView], int]:
        """Return up to `limit` node tasks of a run from place `after` on, and the place that follows, 0 for the end.

        Places count the nodes of all components, in the order of the flow within each. There are fewer node tasks if
        the answer would be too large, with their `config` or without.
        """
        page: Page[TaskView] = Page(limit, ANSWER_BYTES)
        first = 0
        most = _PIECE if outputs else limit
        chosen = set(only)
        for component, plan in await self.plans_of(run, user_id):
            ids = [node.node_id for node in plan.nodes if not chosen or node.node_id in chosen]
            at = max(0, after - first)
            while at < len(ids):
                piece = ids[at : at + min(most, limit + 1 - len(page.items))]
                for view in await self._views(component, plan, piece, outputs=outputs):
                    if not page.add(view, view.size(config=config)):
                        return page.items, first + at
                    at += 1
            first += len(ids)
        return page.items, 0

    async def items(
        self, run: RunName, user_id: str, node_id: str, after: int, limit: int, *, outputs: bool
    ) -> tuple[list[TaskView], int]:
        """Return up to `limit` items of a mapped node from place `after` on, as `node_tasks` does. Raises NotFound."""
        owner = await self._owner(run, user_id, node_id)
        if owner is None or owner[1].nodes[owner[1].place[node_id]].fan_out is None:
            task_id = run.task_id(node_id)
            raise NotFound("mapped node", task_id, "NODE_TASK_NOT_FOUND", metadata={"node_task_id": task_id})
        page: Page[TaskView] = Page(limit, ANSWER_BYTES)
        after = max(0, after)
        while True:
            count = min(_PIECE if outputs else limit, limit + 1 - len(page.items))
            places = range(after, after + count)
            piece = await self._items(*owner, node_id, places, outputs=outputs)
            for view in piece:
                if not page.add(view, view.size()):
                    return page.items, after
                after += 1
            if len(piece) < count:
                return page.items, 0

    async def _items(
        self, component: Component, plan: Plan, node_id: str, items: Sequence[int], *, outputs: bool
    ) -> list[TaskView]:
        shard = self.shard(component.user_id)
        (mapped,) = await shard.reader.tasks([component.run.task_id(node_id)])
        if mapped is not None and mapped.kept:
            # The items belong to the run whose result the node took over.
            former = await self._owner(TaskName.parse(mapped.kept).run, component.user_id, node_id)
            component, plan = former or (component, plan)
            (mapped,) = await shard.reader.tasks([component.run.task_id(node_id)])
        read = await read_items(shard.reader, mapped, plan.nodes[plan.place[node_id]], items, outputs=outputs)
        views = [TaskView(task, component, plan, waits) for task, waits in read]
        return [
            each if each.wait_reason else explained
            for each, explained in zip(views, await self._explain(shard, views), strict=True)
        ]

    async def signals(self, views: Sequence[TaskView], user_id: str) -> list[SignalView]:
        """Return the signals along the edges into these node tasks."""
        sources: dict[str, NodeTask | None] = {item.task.task_id: item.task for item in views}
        edges = [(item, item.plan.edges[at]) for item in views for at in item.plan.edges_into(item.task.index)]
        ids = [item.component.run.task_id(item.plan.nodes[edge.source].node_id) for item, edge in edges]
        missing = list(dict.fromkeys(each for each in ids if each not in sources))
        sources.update(zip(missing, await self.shard(user_id).reader.tasks(missing), strict=True))
        return [
            SignalView(
                item.plan.nodes[edge.source].node_id,
                item.plan.nodes[edge.target].node_id,
                edge,
                _signal(sources[source], edge.source_handle),
            )
            for (item, edge), source in zip(edges, ids, strict=True)
        ]

    async def held_by(
        self, worker_id: str, after: HeldPlace | None, limit: int
    ) -> tuple[list[TaskView], HeldPlace | None]:
        """Return up to `limit` node tasks leased to a worker after place `after`, and the place to go on after, None at
        the end.

        They are ordered by id, since a lease's deadline moves with each renewal.
        """
        page: Page[TaskView] = Page(limit, ANSWER_BYTES)
        last = after
        for number, shard in sorted(self._shards.items()):
            ids = sorted(each for each in await shard.reader.held_by(worker_id) if not after or (number, each) > after)
            while ids:
                count = limit + 1 - len(page.items)
                for view in await self._on_record(shard, ids[:count]):
                    if not page.add(view, view.size()):
                        return page.items, last
                    last = HeldPlace(number, view.task.task_id)
                ids = ids[count:]
        return page.items, None

    async def on_record(self, ids: Sequence[str], user_id: str) -> dict[str, TaskView]:
        """Return node tasks of a user's shard by id; those without a record are left out."""
        return {view.task.task_id: view for view in await self._on_record(self.shard(user_id), ids)}

    async def _on_record(self, shard: Shard, ids: Sequence[str]) -> list[TaskView]:
        tasks = [task for task in await shard.reader.tasks(ids) if task]
        names = [(TaskName.parse(task.task_id).run, task.component_id) for task in tasks]
        components = await shard.reader.components(names)
        plans = await self._plans.fetch(shard.plans, [each.plan for each in components if each])
        return [
            TaskView(task, component, plans[component.plan])
            for task, component in zip(tasks, components, strict=True)
            if component is not None and component.plan in plans
        ]

    async def lines(self, run: RunName, user_id: str, after: str, limit: int) -> Lines:
        """Return up to `limit` log lines of all runs of a cycle, or of an ad-hoc task or a batch, oldest first; fewer
        if they are too large together."""
        found = await self.shard(user_id).reader.lines(run, after, limit + 1)
        page: Page[StoredLine] = Page(limit, ANSWER_BYTES)
        more = not all(page.add(line, 500 + len(line.message.encode())) for line in found)
        return page.items, more

    async def plans_of(self, run: RunName, user_id: str) -> list[tuple[Component, Plan]]:
        """Return the components of a run with their plans; those with unknown plans are left out."""
        components = await self.components(run, user_id)
        plans = await self._plans.fetch(self.shard(user_id).plans, [component.plan for component in components])
        return [(component, plans[component.plan]) for component in components if component.plan in plans]

    async def _owner(self, run: RunName, user_id: str, node_id: str) -> tuple[Component, Plan] | None:
        """Return the component of a run that has a node, with its plan; None when there is none."""
        return next((each for each in await self.plans_of(run, user_id) if node_id in each[1].place), None)

    async def _views(
        self, component: Component, plan: Plan, node_ids: Sequence[str], *, outputs: bool
    ) -> list[TaskView]:
        ids = [component.run.task_id(node_id) for node_id in node_ids]
        shard = self.shard(component.user_id)
        tasks = await self._with_kept_items(plan, await shard.reader.tasks(ids, outputs=outputs), shard)
        views = [
            TaskView(task, component, plan)
            if task is not None
            else TaskView(_not_reached(component, plan, plan.place[node_id]), component, plan, _withheld(component))
            for node_id, task in zip(node_ids, tasks, strict=True)
        ]
        return await self._explain(shard, views)

    @staticmethod
    async def _with_kept_items(plan: Plan, tasks: Sequence[NodeTask | None], shard: Shard) -> list[NodeTask | None]:
        """Fill in the item counts of mapped nodes whose results a rerun took over."""
        kept = [task.kept for task in tasks if task and task.kept and plan.nodes[task.index].fan_out is not None]
        if not kept:
            return list(tasks)
        items = {task.task_id: task.items for task in await shard.reader.tasks(kept) if task is not None}
        return [replace(task, items=items[task.kept]) if task and task.kept in items else task for task in tasks]


def _withheld(component: Component) -> str:
    return "waits until all other components of its cycle have ended" if component.withheld else ""


def _not_reached(component: Component, plan: Plan, place: int) -> NodeTask:
    """Make up the node task of a node that no signal has reached: it has no record, and is registered since its
    component was submitted."""
    node = plan.node(place)
    return NodeTask(
        task_id=component.run.task_id(node.node_id),
        status=NodeTaskStatus.REGISTERED,
        component_id=component.component_id,
        index=place,
        waiting=len(plan.edges_into(place)),
        registered_at=component.submitted_at,
    )


def _signal(source: NodeTask | None, handle: str) -> SignalStatus:
    if source is None or not source.status.terminal:
        return SignalStatus.WAITING
    return SignalStatus.LIVE if handle in source.emitted else SignalStatus.DEAD
