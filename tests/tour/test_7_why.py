"""Chapter 7: bad input gets all its faults at once, and whatever waits has a reason that one can ask for."""

import pytest

from tests.waiting import until
from tradewind.client import InvalidInput
from tradewind.flow import Flow
from tradewind.testing import running_stack
from tradewind.worker import node


@node("model", outputs=["score"])
async def model(price: float, window: int = 20) -> float:
    return price * window


async def test_every_fault_is_reported_with_its_path() -> None:
    definition = {
        "interval": "soon",
        "nodes": [
            {"id": "feed", "type": "quotes"},
            {"id": "model", "type": "model", "config": {"windw": 20}},
        ],
        "edges": [{"source": "feed", "source_handle": "price", "target": "modle", "target_handle": "price"}],
    }
    async with running_stack([model]) as client:
        with pytest.raises(InvalidInput) as refused:
            await client.register_flow("scores", definition)
    faults = {violation.path: violation.message for violation in refused.value.violations}
    assert set(faults) == {"interval", "nodes[1].config.windw", "edges[0].target"}
    assert faults["edges[0].target"] == 'no node "modle"; did you mean "model"?'


async def test_waiting_node_gives_reason() -> None:
    flow = Flow("scores", "1h")
    flow.node("feed", "quotes")["price"] >> flow.node("model", model)["price"]
    async with running_stack([model]) as client:
        registered = await client.register_flow("scores", flow)
        assert "quotes" in str(registered.warnings)
        await client.run_flow("scores")

        async def code(node_id: str) -> str:
            return (await client.explain_node("scores", node_id))[0].code

        async def nobody_offers_it() -> bool:
            return await code("feed") == "no_live_worker"

        await until(nobody_offers_it, "the first node is known to have no worker")
        assert await code("model") == "waits_for_node"
