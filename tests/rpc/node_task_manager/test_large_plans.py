"""Large plans: others have their turns while one is stored and read."""

import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from tests.rpc.node_task_manager.conftest import Ntm, Start, plan
from tests.turns import counted_turns
from tradewind.api.node_task_manager.v1 import node_task_manager_service_pb2 as pb2
from tradewind.api.node_task_manager.v1 import node_task_pb2
from tradewind.node_task_manager.rpc import handlers, mapping
from tradewind.node_task_manager.use_cases.task_views import SignalView

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


async def test_many_signals_are_converted_in_a_thread(ntm: Ntm, monkeypatch: pytest.MonkeyPatch) -> None:
    await ntm.submit(plan(*((f"n{at}", "out", f"n{at + 1}", "price") for at in range(4))))
    convert, threads = mapping.signals, []

    def noted(found: Iterable[SignalView]) -> list[node_task_pb2.Signal]:
        threads.append(threading.get_ident())
        return convert(found)

    monkeypatch.setattr(mapping, "signals", noted)
    request = pb2.ListNodeTasksRequest(flow_id="flow", user_id="default", include_signals=True)
    for most in (4, 3):
        monkeypatch.setattr(handlers, "_MANY_SIGNALS", most)
        assert len((await ntm.stub.ListNodeTasks(request)).signals) == 4
    assert [thread == threading.get_ident() for thread in threads] == [True, False]
