"""Large plans: others have their turns while one is stored and read."""

from collections.abc import Awaitable, Callable
from typing import Any

from tests.rpc.node_task_manager.conftest import Ntm, Start, plan
from tests.turns import counted_turns

NODES = 2000
MOST_CALLS = 30_000
"""In one turn of the loop: some 5 ms. To check and parse a plan of 2000 nodes takes four times as many."""


async def test_no_call_for_a_large_plan_keeps_the_loop_for_long(ntm: Ntm, start: Start) -> None:
    chain = plan(*((f"n{at}", "out", f"n{at + 1}", "price") for at in range(NODES - 1)))
    other = await start()
    wide = plan(nodes=" ".join(f"n{at}" for at in range(NODES)), digest="p2")
    calls: dict[str, Callable[[], Awaitable[Any]]] = {
        "submit a chain": lambda: ntm.submit(chain),
        "submit nodes that are ready at once": lambda: ntm.submit(wide, cycle=1),
        "read a node where the plan is unknown": lambda: other.node("n1"),
    }
    long: dict[str, Any] = {}
    for name, call in calls.items():
        with counted_turns() as longest:
            await call()
        if longest.calls > MOST_CALLS:
            long[name] = longest
    assert long == {}
