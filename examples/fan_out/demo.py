"""`python -m examples.fan_out.demo [MONTH]`: runs a whole stack, and a flow with a node that fans out over a list."""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from examples.fan_out import nodes
from tradewind.client import Client
from tradewind.flow import read_flow
from tradewind.standalone import Standalone
from tradewind.worker import Worker

FLOW = Path(__file__).with_name("flow.json")
PATIENCE_S = 60.0


async def main(arguments: Sequence[str]) -> int:
    """Run the flow for a month and print the results; return the exit code."""
    parser = argparse.ArgumentParser(description="Show how far shares are below their highest price of twelve months.")
    parser.add_argument("month", nargs="?", default="2004-12", help="from 2000-01 to 2010-03; 2004-12 unless given")
    month = parser.parse_args(arguments).month
    with tempfile.TemporaryDirectory(prefix="tradewind-demo-") as home:
        async with (
            Standalone(data=Path(home) / "store", port=0) as stack,
            Worker([nodes.shares, nodes.drawdown, nodes.deepest], address=stack.address),
            Client(stack.address) as client,
        ):
            flow = read_flow(FLOW, "deepest")
            print(flow.to_text(), end="\n\n")
            await client.register_flow("deepest", flow)
            handle = await client.run_flow("deepest", inputs={"month": month})
            cycle = await handle.wait(PATIENCE_S)
            described = await handle.describe(include_outputs=True)
            items = [item async for item in client.list_node_tasks("deepest", cycle.cycle, items_of="drawdown")]
    for item in items:
        print(f"item {item.item}: {item.status}" + (f", {item.error}" if item.error else ""))
    for failure in described.failures:
        print(failure)
    report = described.node("deepest")
    if report is not None and report.outputs:
        report_of = report.outputs["report"]
        print(f"{report_of['deepest']} fell most: {report_of['drawdowns'][report_of['deepest']]:.0%}")
    return 0 if cycle.succeeded else 1


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1:])))
