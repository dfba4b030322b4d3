"""Node tasks that wait for cycles of other flows: listing them, the inputs of the cycles, and how these ended."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from tradewind.node_task_manager.domain.component import Component
from tradewind.node_task_manager.domain.names import RunName, TaskName
from tradewind.node_task_manager.domain.node_task import NodeTask
from tradewind.node_task_manager.domain.plan import Plan
from tradewind.node_task_manager.domain.sub_flow import SubFlowReport
from tradewind.node_task_manager.ports.reading import NodeTaskReader
from tradewind.node_task_manager.use_cases.dispatch import Dispatcher
from tradewind.node_task_manager.use_cases.inputs import InputsTooLarge, by_handle, read_inputs
from tradewind.node_task_manager.use_cases.items import read_items
from tradewind.node_task_manager.use_cases.node_task_records import NodeTaskRecords
from tradewind.node_task_manager.use_cases.shard import by_shard
from tradewind.server.built_in.flows import MAX_INPUT_BYTES

_AT_ONCE = 500


class _Inputs(msgspec.Struct):
    """The inputs of a cycle given in a config, as they were written; the config was checked when its plan came."""

    input: dict[str, msgspec.Raw] = {}


_config = msgspec.json.Decoder(_Inputs).decode
_raw = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

Reported = tuple[str, SubFlowReport]
"""The user who owns the node task, and the report."""


@dataclass(frozen=True, slots=True)
class SubFlowWait:
    """A node task that waits for a cycle of `flow_id`, with the inputs on request, unless they are too large."""

    task: NodeTask
    run_id: str
    flow_id: str
    inputs_json: str = ""
    input_bytes: int = 0


class SubFlows:
    """Reads and reports, over all shards."""

    def __init__(self, dispatchers: Mapping[int, Dispatcher], records: NodeTaskRecords) -> None:
        self._dispatchers = dispatchers
        self._records = records

    async def waits(self, run: RunName, user_id: str, after: int, limit: int) -> tuple[list[SubFlowWait], int]:
        """Return the waiting node tasks among `limit` of a run from place `after` on, and the place that follows.

        Places count all nodes of type `flow` and their items; 0 stands for the end.
        """
        found: list[SubFlowWait] = []
        async for first, component, tasks in self._node_tasks(run, user_id, after):
            for place, task in enumerate(tasks, first):
                if place >= after + limit:
                    return found, place
                if (wait := _wait(component, task)) is not None:
                    found.append(wait)
        return found, 0

    async def inputs(self, run: RunName, user_id: str, task_ids: Sequence[str], most: int) -> list[SubFlowWait]:
        """Return the node tasks that wait, with their inputs; stop after the one that exceeds `most` bytes in all."""
        reader, found, size = self._records.shard(user_id).reader, list[SubFlowWait](), 0
        plans = {each[0].component_id: each for each in await self._records.plans_of(run, user_id)}
        for task in filter(None, await reader.tasks(task_ids, inputs=True)):
            owner = plans.get(task.component_id)
            wait = _wait(owner[0], task) if owner is not None else None
            if owner is not None and wait is not None:
                found.append(await self._with_inputs(wait, owner[1], reader))
                size += len(found[-1].inputs_json.encode())
                if size > most:
                    break
        return found

    async def report(self, reports: Sequence[Reported]) -> list[bool]:
        """Take reports of cycles; say of each whether the node task waits, or waited until now, for that cycle."""
        awaited = [False] * len(reports)
        placed = ((self._records.shard(user_id).number, at) for at, (user_id, _) in enumerate(reports))
        for number, places in by_shard(placed).items():
            dispatcher = self._dispatchers[number]
            effects = await dispatcher.shard.tasks.report_sub_flows([reports[at][1] for at in places])
            dispatcher.apply(effects)
            dispatcher.request_claim()
            for at, result in zip(places, effects.results, strict=True):
                awaited[at] = not result
        return awaited

    async def _node_tasks(
        self, run: RunName, user_id: str, after: int
    ) -> AsyncIterator[tuple[int, Component, Sequence[NodeTask | None]]]:
        """Yield the node tasks of nodes of type `flow`, or the items of mapped ones, from place `after` on.

        A bounded number comes at a time, with the place of the first; none before `after` are read.
        """
        reader, first = self._records.shard(user_id).reader, 0
        for component, plan in await self._records.plans_of(run, user_id):
            places = [at for at, node in enumerate(plan.nodes) if node.wait is not None and node.wait.flow_id]
            plain = [component.run.task_id(plan.nodes[at].node_id) for at in places if not plan.nodes[at].fan_out]
            for at in range(max(after - first, 0), len(plain), _AT_ONCE):
                yield first + at, component, await reader.tasks(plain[at : at + _AT_ONCE])
            first += len(plain)
            mapped = [plan.nodes[at] for at in places if plan.nodes[at].fan_out]
            for begin in range(0, len(mapped), _AT_ONCE):
                nodes = mapped[begin : begin + _AT_ONCE]
                owners = await reader.tasks([component.run.task_id(node.node_id) for node in nodes])
                for node, owner in zip(nodes, owners, strict=True):
                    total = owner.items.total if owner is not None and owner.items is not None else 0
                    for at in range(max(after - first, 0), total, _AT_ONCE):
                        items = await read_items(reader, owner, node, range(at, at + _AT_ONCE))
                        yield first + at, component, [task for task, _ in items]
                    first += total

    async def _with_inputs(self, wait: SubFlowWait, plan: Plan, reader: NodeTaskReader) -> SubFlowWait:
        task, run = wait.task, TaskName.parse(wait.task.task_id).run
        try:
            inputs = await read_inputs(reader, run, plan, task.inputs)
        except InputsTooLarge as error:
            return replace(wait, input_bytes=error.size)
        config = plan.nodes[task.index].config_json
        values = {name: bytes(value).decode() for name, value in _config(config or "{}").input.items()}
        if not plan.inputs[task.index]:
            given = await reader.run_inputs(run, task.component_id)
            values |= {name: bytes(value).decode() for name, value in _raw(given or "{}").items()}
        for handle, emitted in by_handle(plan, inputs).items():
            values[handle] = emitted[0] if len(emitted) == 1 else f"[{','.join(emitted)}]"
        text = "{" + ",".join(f"{_encode(name)}:{value}" for name, value in values.items()) + "}"
        size = len(text.encode())
        return replace(wait, inputs_json=text if size <= MAX_INPUT_BYTES else "", input_bytes=size)


def _wait(component: Component, task: NodeTask | None) -> SubFlowWait | None:
    """Return what a node task waits for, None when it waits for no cycle or its component is to stop."""
    if task is None or task.wait is None or not task.wait.flow_id or component.stop is not None:
        return None
    return SubFlowWait(task, component.run_id, task.wait.flow_id)


def _encode(value: object) -> str:
    return msgspec.json.encode(value).decode()
