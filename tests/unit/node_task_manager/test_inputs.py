"""The values of a node's inputs, and the limit on all of them together."""

from collections.abc import Sequence
from typing import cast

import pytest

from tradewind.node_task_manager.domain.node_task import ELSEWHERE
from tradewind.node_task_manager.domain.plan import Plan, PlanEdge, PlanNode
from tradewind.node_task_manager.ports.reading import NodeTaskReader
from tradewind.node_task_manager.ports.work import Assignment
from tradewind.node_task_manager.use_cases.inputs import TooLarge, read_inputs

_VALUE = '"中文"'
_EDGES = 10


class _Sources:
    """The part of a NodeTaskReader that reads emitted values; all sources have emitted the same one."""

    async def outputs(self, wanted: Sequence[tuple[str, str]]) -> list[str | None]:
        return [_VALUE] * len(wanted)


@pytest.mark.parametrize("known", [_VALUE, ELSEWHERE], ids=["inline", "elsewhere"])
async def test_input_limit_counts_bytes_of_inline_and_stored_values(known: str) -> None:
    edges = tuple(PlanEdge(0, "out", 1, "in") for _ in range(_EDGES))
    plan = Plan("p", (PlanNode("source", "noop"), PlanNode("gather", "noop")), edges)
    values = tuple((at, known) for at in range(_EDGES))
    given = Assignment("w1", "flow:0:0:gather", "n", 1, "0", "p", 1, "r0", "default", values)
    size = _EDGES * len(_VALUE.encode())
    read = await read_inputs(cast(NodeTaskReader, _Sources()), given, plan, limit=size + _EDGES)
    assert isinstance(read, Assignment)
    assert {value for _, value in read.inputs} == {_VALUE}
    assert isinstance(await read_inputs(cast(NodeTaskReader, _Sources()), given, plan, limit=size - 1), TooLarge)
