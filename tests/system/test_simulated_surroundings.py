"""What surrounds a simulation: its clock, its randomness, the environment and other threads."""

import asyncio
import random
import secrets
import threading
import time
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import gauss

import pytest

from tests.system.simulated import feed, model, order, single
from tradewind.flow import Flow
from tradewind.testing import VirtualStack, simulate
from tradewind.testing.virtual.loop import VirtualLoop
from tradewind.worker import Context, node


def test_month_long_delay_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    leaps = 0
    leap = VirtualLoop.leap

    def count(loop: VirtualLoop, least_ns: int) -> None:
        nonlocal leaps
        leaps += 1
        leap(loop, least_ns)

    monkeypatch.setattr(VirtualLoop, "leap", count)

    async def main(stack: VirtualStack) -> timedelta:
        begun = stack.now
        flow = Flow("one", "1h")
        flow.node("only", "delay", {"seconds": 30 * 86_400})
        await stack.client.register_flow("one", flow)
        await (await stack.client.run_flow("one")).wait()
        return stack.now - begun

    assert simulate(main, [feed]) == timedelta(days=30)
    # Some two for each quarter of an hour, and one for each hour, when the scheduler is asked whether the run is still
    # open. One for each second of the month would be 2.6 million.
    assert leaps < 7_000


def test_only_secrets_come_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "feed-key").write_text("hidden")
    monkeypatch.setenv("TRADEWIND_SECRETS_DIR", str(tmp_path))
    monkeypatch.setenv("TRADEWIND_CODEC", "nowhere:codec")
    monkeypatch.setenv("TRADEWIND_MAX_MESSAGE_BYTES", "none")
    monkeypatch.setenv("TRADEWIND_OTLP_ENDPOINT", "http://localhost:1")

    @node("keyed")
    async def keyed(key: str) -> int:
        return len(key)

    async def main(stack: VirtualStack) -> None:
        flow = Flow("one", "1h")
        flow.node("only", "keyed", {"key": {"$secret": "feed-key"}})
        await stack.client.register_flow("one", flow)
        assert await (await stack.client.run_flow("one")).result() == {"only": {"output": 6}}

    simulate(main, [keyed])


def test_time_advances_only_while_something_waits() -> None:
    @node("pause")
    async def pause(ctx: Context) -> float:
        begun = time.time()
        await asyncio.sleep(3)
        return time.time() - begun

    async def main(stack: VirtualStack) -> None:
        start = datetime(2030, 5, 1, tzinfo=UTC)
        assert stack.now == start
        await stack.client.register_flow("one", single("pause"))
        assert stack.now == start
        handle = await stack.client.run_flow("one")
        assert await handle.result() == {"only": {"output": 3.0}}
        assert stack.now == start + timedelta(seconds=3)
        await stack.run_for(days=40)
        assert stack.now == start + timedelta(days=40, seconds=3)
        assert [worker.worker_id async for worker in stack.client.list_workers()] == ["worker-1"]

    simulate(main, [pause], start=datetime(2030, 5, 1, tzinfo=UTC))


def test_other_threads_keep_real_time() -> None:
    async def main(stack: VirtualStack) -> None:
        theirs: list[float] = []
        thread = threading.Thread(target=lambda: theirs.append(time.time()))
        thread.start()
        thread.join()
        assert time.time() < datetime(2001, 1, 1, tzinfo=UTC).timestamp() < theirs[0]

    simulate(main, [feed, model, order], start=datetime(2000, 1, 1, tzinfo=UTC))


def test_seed_determines_all_random_values() -> None:
    @node("dice")
    async def dice() -> list[str]:
        numbers = [random.random(), random.randint(1, 10**9), gauss(), secrets.randbelow(10**9)]
        return [*map(str, numbers), secrets.token_hex(4), str(uuid.uuid4())]

    async def main(stack: VirtualStack) -> object:
        await stack.client.register_flow("one", single("dice"))
        return await (await stack.client.run_flow("one")).result()

    before = random.getstate()
    first, again, other = (simulate(main, [dice], seed=seed) for seed in (1, 1, 2))
    assert first == again != other
    assert random.getstate() == before
