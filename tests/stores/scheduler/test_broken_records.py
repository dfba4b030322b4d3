"""A record that somebody has changed by hand costs nothing but itself."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.servers import RedisServer
from tests.stores.scheduler.bench import Bench, redis_stores
from tradewind.scheduler.domain.flow_definition import OverlapPolicy
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.stores.keys import Keys
from tradewind.scheduler.use_cases.read_flows import FlowFilter, ReadFlows
from tradewind.server.clock import ManualClock
from tradewind.server.faults import Unreadable

KEYS = Keys()
BROKEN, WHOLE = RunName("f", 0), RunName("f", 1)
RUN = KEYS.run(*BROKEN)


@pytest.fixture
def bench(redis_server: RedisServer) -> Bench:
    clock = ManualClock()
    return Bench(redis_stores(redis_server, clock), clock)


async def breaks(server: RedisServer, *commands: tuple[Any, ...]) -> None:
    """Change records by hand."""
    for command in commands:
        await server.connect().execute_command(*command)


CHANGES = [
    [("HSET", RUN, "facts", '["default"')],
    [("HSET", RUN, "facts", "\xff".encode("latin-1"))],
    [("HDEL", RUN, "run_id")],
    [("DEL", RUN), ("SET", RUN, "text")],
]


@pytest.mark.parametrize("commands", CHANGES, ids=["truncated", "undecodable", "incomplete", "another type"])
async def test_broken_run_hides_no_other(
    bench: Bench, redis_server: RedisServer, commands: list[tuple[Any, ...]]
) -> None:
    await bench.register(overlap=OverlapPolicy.ALLOW)
    await bench.begun()
    whole = await bench.begun()
    await breaks(redis_server, *commands)
    with capture_logs() as logs:
        assert await bench.stores.states.load_many([BROKEN, WHOLE]) == [None, whole]
        assert await bench.stores.states.load_many([BROKEN]) == [None]
    assert [(line["event"], line["what"]) for line in logs] == [("run_unreadable", RUN)]
    with pytest.raises(Unreadable, match=r"cycle:0:0 cannot be read: .*; put it right, remove the key, or restore"):
        await bench.stores.states.load(BROKEN)
    assert await bench.stores.cycles.newest("f", None, 5) == [whole]


async def test_broken_run_is_forgotten_only_when_it_is_no_run(bench: Bench, redis_server: RedisServer) -> None:
    await bench.register(overlap=OverlapPolicy.ALLOW)
    await bench.begun()
    await breaks(redis_server, ("HSET", RUN, "facts", "["))
    await bench.stores.open_runs.forget(BROKEN)
    assert await bench.stores.open_runs.of_flow("f", 5) == [BROKEN]
    await breaks(redis_server, ("DEL", RUN), ("SET", RUN, "text"))
    await bench.stores.open_runs.forget(BROKEN)
    assert await bench.stores.open_runs.of_flow("f", 5) == []


async def test_broken_flow_hides_no_other_in_a_list(bench: Bench, redis_server: RedisServer) -> None:
    for flow_id in ("f", "g", "h"):
        await bench.register(flow_id)
    await breaks(
        redis_server, ("HDEL", KEYS.flow("f"), "config"), ("DEL", KEYS.flow("g")), ("SET", KEYS.flow("g"), "text")
    )
    stores = bench.stores
    flows, _ = await ReadFlows(stores.flows, stores.cycles, stores.states).flows(FlowFilter(), "", 10)
    assert [flow.flow_id for flow in flows] == ["h"]
    assert await stores.flows.owners(["f", "g", "h"]) == ["default", None, "default"]
    for flow_id in ("f", "g"):
        with pytest.raises(Unreadable, match=f"flow:{flow_id} cannot be read"):
            await stores.flows.find([flow_id, "h"])
