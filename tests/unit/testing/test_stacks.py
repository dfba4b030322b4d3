"""What the helpers that run a whole stack refuse before they start anything."""

from typing import Any

import pytest

from tradewind.testing import VirtualStack, running_stack, simulate
from tradewind.worker.errors import NodeDefinitionError

NOT_NODES: list[Any] = [len, [len], None]


@pytest.mark.parametrize("nodes", NOT_NODES)
def test_simulation_refuses_what_is_not_a_node(nodes: Any) -> None:
    async def main(stack: VirtualStack) -> None: ...

    with pytest.raises(NodeDefinitionError, match="is not a node: decorate the function with @node"):
        simulate(main, nodes)


@pytest.mark.parametrize("nodes", NOT_NODES)
async def test_stack_refuses_what_is_not_a_node(nodes: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tradewind.testing.stack.Standalone", None)

    with pytest.raises(NodeDefinitionError, match="is not a node: decorate the function with @node"):
        async with running_stack(nodes):
            pass
