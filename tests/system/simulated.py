"""Flows to simulate, and a month of an hourly one whose feed fails once a day, and whose worker is cut off once a day.

Run as a program with a number of days, it prints the history.
"""

import asyncio
import logging
import sys

from tradewind.flow import Flow, Retry
from tradewind.testing import History, VirtualStack, simulate
from tradewind.worker import Context, node

FAILS_AT, SILENT_AT = 3, 5
"""The hours of each day at which the feed fails and the worker is cut off."""


@node("feed")
async def feed(ctx: Context) -> int:
    await asyncio.sleep(0.5)
    if ctx.cycle % 24 == FAILS_AT and ctx.attempt == 1:
        raise ConnectionError("the exchange does not answer")
    return ctx.cycle


@node("model")
def model(price: int) -> int:
    return 2 * price


@node("order")
async def order(signal: int) -> int:
    return signal + 1


def hourly() -> Flow:
    """Return the hourly flow."""
    flow = Flow("trades", "1h", keep_cycles=100)
    price = flow.node("feed", "feed", retry=Retry(2, initial="5s"))
    signal = flow.node("model", "model")
    price["output"] >> signal["price"]
    signal["output"] >> flow.node("order", "order")["signal"]
    return flow


def single(node_type: str, retry: Retry | None = None) -> Flow:
    """Return a flow of one node."""
    flow = Flow("one", "1h")
    flow.node("only", node_type, retry=retry)
    return flow


def history_of(days: int, seed: int = 0) -> History:
    """Simulate `days` days and return the history."""

    async def main(stack: VirtualStack) -> History:
        await stack.client.register_flow("trades", hourly())
        await stack.client.start_flow("trades")
        for _ in range(days):
            await stack.run_for(hours=SILENT_AT, seconds=0.2)
            stack.silence_worker(seconds=45)
            await stack.run_for(hours=23 - SILENT_AT, minutes=59, seconds=59.8)
        return stack.history

    return simulate(main, [feed, model, order], seed=seed)


if __name__ == "__main__":
    logging.disable()
    sys.stdout.buffer.write(history_of(int(sys.argv[1])).to_json())
