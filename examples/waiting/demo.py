"""`python -m examples.waiting.demo [reject]`: runs a whole stack, and a flow with an approval and a node that waits."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from examples.waiting import nodes
from tradewind.client import Client, NodeTaskRecord
from tradewind.flow import read_flow
from tradewind.standalone import Standalone
from tradewind.worker import Worker

FLOW = Path(__file__).with_name("flow.json")
PATIENCE_S = 60.0


async def main(arguments: Sequence[str]) -> int:
    """Run the flow, answer its questions, and play the exchange; return the exit code."""
    parser = argparse.ArgumentParser(description="Run a flow that asks a person, and answer.")
    parser.add_argument("answer", nargs="?", choices=["approve", "reject"], default="approve")
    approved = parser.parse_args(arguments).answer == "approve"
    with tempfile.TemporaryDirectory(prefix="tradewind-demo-") as home:
        async with (
            Standalone(data=Path(home) / "store", port=0) as stack,
            Worker([nodes.quote, nodes.buy, nodes.decline], address=stack.address),
            Client(stack.address) as client,
        ):
            await client.register_flow("buying", read_flow(FLOW, "buying"))
            handle = await client.run_flow("buying")
            ask = await waiting(client, "buying:0:0:ask")
            print(f"asked: {ask.wait.form['title'] if ask.wait else ''}")
            await client.answer_node(ask.node_task_id, approved=approved, values={"count": 100}, by="ada")
            if approved:
                buy = await waiting(client, "buying:0:0:buy")
                print(f"{buy.node_id} {buy.reason.partition(',')[0]}")
                await client.signal_node(buy.node_task_id, "filled", {"price": 98.5}, by="exchange")
            cycle = await handle.wait(PATIENCE_S)
            described = await handle.describe(include_outputs=True)
    for sink in described.sinks:
        if sink.outputs:
            print(f"{sink.node_id}: {sink.outputs}")
    return 0 if cycle.succeeded else 1


async def waiting(client: Client, task_id: str) -> NodeTaskRecord:
    """Return a node task as soon as it is suspended."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            task = await client.get_node_task(task_id)
            if task.wait is not None:
                return task
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
