"""Admitted calls are counted in a sliding window, and the reported reset is the true one."""

from tests.servers import RedisServer
from tests.stores.access.bench import DAY, MINUTE, Bench, redis_bench
from tradewind.access.stores.keys import Keys
from tradewind.access.stores.redis import RedisAccess
from tradewind.server.clock import ManualClock, ScriptTime
from tradewind.server.rates import Rate

SIXTY = Rate(60, MINUTE)


async def test_one_call_a_second_is_never_refused_at_sixty_a_minute(bench: Bench) -> None:
    for _ in range(150):
        assert await bench.calls.admit("ann", "RunFlow", SIXTY) == 0
        bench.clock.advance(1000)


async def test_burst_is_refused_until_its_first_call_leaves_the_window(bench: Bench) -> None:
    """A window that began anew every minute would admit twice as many around its edge."""
    bench.clock.advance(59_000)
    for _ in range(60):
        assert await bench.calls.admit("ann", "RunFlow", SIXTY) == 0
    bench.clock.advance(2_000)
    for _ in range(3):
        assert await bench.calls.admit("ann", "RunFlow", SIXTY) == 58_000
    assert await bench.calls.admit("ann", "SubmitTask", SIXTY) == await bench.calls.admit("bob", "RunFlow", SIXTY) == 0
    bench.clock.advance(58_000 - 1)
    assert await bench.calls.admit("ann", "RunFlow", SIXTY) == 1
    bench.clock.advance(1)
    assert [await bench.calls.admit("ann", "RunFlow", SIXTY) for _ in range(61)] == [*[0] * 60, MINUTE]


async def test_calls_under_a_clock_that_is_behind_count_as_long_as_others(redis_server: RedisServer) -> None:
    now_ms = ManualClock()()
    ahead, behind = (redis_bench(redis_server, ManualClock(now_ms - late_ms)).calls for late_ms in (0, 5_000))
    rate = Rate(2, MINUTE)
    assert [await calls.admit("ann", "RunFlow", rate) for calls in (ahead, behind, ahead)] == [0, 0, MINUTE]


async def test_calls_under_a_clock_that_was_far_ahead_lock_nobody_out(redis_server: RedisServer) -> None:
    now_ms = ManualClock()()
    wrong, right = (redis_bench(redis_server, ManualClock(now_ms + ahead_ms)).calls for ahead_ms in (400 * DAY, 0))
    rate = Rate(2, MINUTE)
    assert [await calls.admit("ann", "RunFlow", rate) for calls in (wrong, right, right)] == [0, 0, 0]
    assert await right.admit("ann", "RunFlow", rate) == MINUTE


async def test_bulk_calls_are_admitted_all_or_none(bench: Bench) -> None:
    rate = Rate(5, 1000)
    assert await bench.calls.admit("ann", "RunFlow", rate, 3) == 0
    bench.clock.advance(400)
    assert await bench.calls.admit("ann", "RunFlow", rate, 3) == 600
    assert await bench.calls.admit("ann", "RunFlow", rate, 2) == 0
    assert await bench.calls.admit("ann", "RunFlow", rate, 4) == 1000
    assert await bench.calls.admit("ann", "RunFlow", rate, 6) == 1000


async def test_every_call_of_a_large_bulk_counts(bench: Bench) -> None:
    rate = Rate(2600, MINUTE)
    assert await bench.calls.admit("ann", "RunFlow", rate, 1) == 0
    bench.clock.advance(1000)
    assert await bench.calls.admit("ann", "RunFlow", rate, 2500) == 0
    assert await bench.calls.admit("ann", "RunFlow", rate, 99) == 0
    assert await bench.calls.admit("ann", "RunFlow", rate, 1) == MINUTE - 1000
    assert await bench.calls.admit("ann", "RunFlow", rate, 2) == MINUTE


async def test_large_bulk_is_counted_in_few_commands(embedded: RedisServer) -> None:
    """RunFlows takes 10 000 items; with a command for each, the store would stand twice as long."""
    await embedded.flush()
    client = embedded.connect()
    calls = RedisAccess(embedded.connect("access"), Keys(), ScriptTime()).calls
    await client.execute_command("CONFIG", "RESETSTAT")
    assert await calls.admit("ann", "RunFlow", Rate(10_000, MINUTE), 10_000) == 0
    assert (await client.info("commandstats"))["cmdstat_zadd"]["calls"] == 20
    await embedded.close_clients()
