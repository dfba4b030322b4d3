"""The values of a node's inputs, and the limit on all of them together."""

from collections.abc import Sequence
from typing import cast

import pytest

from tradewind.node_task_manager.domain.names import RunName
from tradewind.node_task_manager.domain.node_task import ELSEWHERE
from tradewind.node_task_manager.domain.plan import Plan, PlanEdge, PlanNode
from tradewind.node_task_manager.ports.reading import NodeTaskReader
from tradewind.node_task_manager.use_cases.inputs import InputsTooLarge, read_inputs

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
    given = tuple((at, known) for at in range(_EDGES))
    run, size = RunName("flow", 0, 0), _EDGES * len(_VALUE.encode())
    read = await read_inputs(cast(NodeTaskReader, _Sources()), run, plan, given, limit=size + _EDGES)
    assert {value for _, value in read} == {_VALUE}
    with pytest.raises(InputsTooLarge):
        await read_inputs(cast(NodeTaskReader, _Sources()), run, plan, given, limit=size - 1)
