"""What nodes that wait for cycles of other flows are told of their ends, and how many are told at once."""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from msgspec import structs

from tests.unit.scheduler.memory_scheduler import MemoryScheduler
from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.cycle_status import CycleStatus
from tradewind.scheduler.domain.ended_run import EndedRun
from tradewind.scheduler.domain.parent import Parent
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.domain.sub_flow import FAILED, MAX_OUTPUT_BYTES, TOO_LARGE, SubFlowReport, SubFlowWait
from tradewind.scheduler.use_cases.return_ends import ReturnEnds
from tradewind.scheduler.use_cases.sub_flows import SubFlows
from tradewind.server.faults import Unreadable

PARENT = Parent(RunName("above", 0), "above-run", "sub", 1)


class Nodes:
    """Keeps the lists of reports that come."""

    def __init__(self) -> None:
        self.told: list[list[SubFlowReport]] = []

    async def report(self, reports: Sequence[SubFlowReport]) -> list[bool]:
        self.told.append(list(reports))
        return [True] * len(reports)


async def ended(output: str) -> ChainState:
    """Return a completed cycle for a node of another flow, which has emitted this."""
    scheduler = MemoryScheduler()
    await scheduler.register("f")
    state = (await scheduler.run("f")).state
    assert state is not None
    facts = structs.replace(state.facts, parent=PARENT)
    return structs.replace(
        state, status=CycleStatus.COMPLETED, facts=facts, notes=replace(state.notes, result_json=output)
    )


async def told_of(states: Sequence[ChainState]) -> list[list[SubFlowReport]]:
    nodes = Nodes()
    nothing = cast(Any, None)
    await ReturnEnds(nothing, nothing, nothing, nothing, cast(Any, nodes), nothing).report(states)
    return nodes.told


@pytest.mark.parametrize("over", [0, 1])
async def test_node_emits_up_to_a_mebibyte_and_fails_for_good_beyond(over: int) -> None:
    ((report,),) = await told_of([await ended("1" * (MAX_OUTPUT_BYTES + over))])
    assert (report.error_code, report.final) == ((TOO_LARGE, True) if over else ("", False))
    assert len(report.output_json) == (0 if over else MAX_OUTPUT_BYTES)


async def test_ends_are_told_a_hundred_at_a_time_and_two_mebibytes() -> None:
    small, large = await ended("1"), await ended("1" * MAX_OUTPUT_BYTES)
    assert [len(reports) for reports in await told_of([small] * 250)] == [100, 100, 50]
    assert [len(reports) for reports in await told_of([large] * 5)] == [2, 2, 1]
    assert await told_of([]) == []


async def test_end_of_a_run_whose_name_another_run_has_is_not_told() -> None:
    state, nodes, nothing = await ended("1"), Nodes(), cast(Any, None)
    left = [EndedRun(state.name, run_id, CycleStatus.COMPLETED, 5) for run_id in ("lost", state.facts.run_id)]

    class Returns:
        async def waiting(self, partitions: Collection[int], limit: int) -> list[EndedRun]:
            return list(left)

        async def remove(self, ends: Sequence[EndedRun]) -> None:
            left.clear()

    class States:
        async def load_many(self, runs: Sequence[RunName]) -> list[ChainState]:
            return [state for _ in runs]

    await ReturnEnds(Returns(), cast(Any, States()), nothing, nothing, cast(Any, nodes), nothing)([0])
    assert [len(reports) for reports in nodes.told] == [1]


async def test_node_fails_whose_cycle_has_outputs_that_only_an_unreadable_record_names() -> None:
    readable, other, nodes, nothing = await ended("1"), await ended(""), Nodes(), cast(Any, None)

    class Definitions:
        async def of_run(self, run: ChainState) -> None:
            raise Unreadable("flow:f", "it is of another type")

    await ReturnEnds(nothing, nothing, cast(Any, Definitions()), nothing, cast(Any, nodes), nothing).report(
        [other, readable]
    )
    ((failed, told),) = nodes.told
    assert (failed.error_code, told.output_json) == (FAILED, "1")
    assert failed.error.startswith('cycle 0 of flow "f" completed, but the record flow:f cannot be read')


async def test_node_whose_lost_cycle_gave_its_number_to_the_cycle_of_another_node_is_told() -> None:
    """The store may have lost that a cycle began, and give its number to another one."""
    child = structs.replace(await ended(""), status=CycleStatus.RUNNING)
    parent = structs.replace(child, name=PARENT.run, facts=structs.replace(child.facts, run_id=PARENT.run_id))

    class Waits(Nodes):
        async def waits(self, run: RunName, user_id: str) -> AsyncIterator[SubFlowWait]:
            for node in ("lost", PARENT.node):
                yield SubFlowWait(node, PARENT.run_id, 1, "f", child=child.name)

    class States:
        async def load_many(self, runs: Sequence[RunName]) -> list[ChainState]:
            return [child for _ in runs]

    nodes, nothing = Waits(), cast(Any, None)
    returns = ReturnEnds(nothing, nothing, nothing, nothing, cast(Any, nodes), nothing)
    await SubFlows(cast(Any, nodes), nothing, cast(Any, States()), nothing, nothing, returns).check(parent)
    assert [[(report.parent.node, report.error_code) for report in reports] for reports in nodes.told] == [
        [("lost", FAILED)]
    ]


async def test_cycle_that_cannot_be_stopped_because_a_record_is_unreadable_keeps_no_other_from_being_stopped() -> None:
    child = structs.replace(await ended(""), status=CycleStatus.RUNNING)
    other = structs.replace(child, name=RunName("g", 0))
    stopped: list[str] = []

    class Unwanted:
        async def report(self, reports: Sequence[SubFlowReport]) -> list[bool]:
            return [False] * len(reports)

    class States:
        async def load_many(self, runs: Sequence[RunName]) -> list[ChainState]:
            return [child, other]

    async def stop(flow_id: str, *_: object, **__: object) -> None:
        if flow_id == child.name.flow_id:
            raise Unreadable("flow:f", "it is of another type")
        stopped.append(flow_id)

    nothing = cast(Any, None)
    sub_flows = SubFlows(cast(Any, Unwanted()), nothing, cast(Any, States()), nothing, cast(Any, stop), nothing)
    await sub_flows.stop_unwanted([child, other])
    assert stopped == ["g"]
