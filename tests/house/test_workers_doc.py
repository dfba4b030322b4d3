"""The code of docs/workers.md and docs/where-nodes-run.md runs, and their numbers and names are right."""

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.house.pages import module_of
from tests.house.project import ROOT
from tests.unit.worker.attempts import Bench
from tradewind.testing import run_node, running_stack
from tradewind.worker import Node, Worker
from tradewind.worker.offered import CAPACITY
from tradewind.worker.processes.pool import ProcessPool
from tradewind.worker.processes.targets import locate
from tradewind.worker.secrets import environment_name

TEXT = "\n".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("workers.md", "where-nodes-run.md"))
CODE = "\n".join(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL))


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[ModuleType]:
    """All code of both pages as one module."""
    with module_of("shown_in_workers", CODE, tmp_path) as module:
        yield module


async def test_nodes_of_the_page_run(shown: ModuleType) -> None:
    assert (await run_node(shown.moving_average, prices=[1, 2, 3, 4], config={"window": 2})).output == 3.5
    assert (await run_node(shown.vote, opinions=[0.9, 0.7])).outputs == {"buy": 0.8}
    assert (await run_node(shown.fetch, symbol="IBM")).output == 3
    assert (await run_node(shown.convert, price=10, config={"rate": 2})).output == 20
    assert (await run_node(shown.poll, stop="enough")).terminated
    closed = (await run_node(shown.order, state="closed")).error
    assert closed is not None
    assert (closed.type, closed.non_retryable) == ("AccountClosed", True)


async def test_large_result_of_the_page_is_emitted_as_its_place(shown: ModuleType, tmp_path: Path) -> None:
    run = await run_node(shown.simulate_prices, config={"folder": str(tmp_path), "days": 8})
    assert run.outputs == {"file": str(tmp_path / "test:simulate_prices.csv")}
    assert [file.name for file in tmp_path.glob("test*")] == ["test:simulate_prices.csv"]
    assert (await run_node(shown.highest, file=run.output)).output == 106


async def test_node_of_the_page_that_is_a_client_runs(shown: ModuleType) -> None:
    async with running_stack([shown.fetch, shown.lengths]) as client:
        task = await client.submit_task(shown.lengths, {"symbols": ["IBM", "AAPL"]})
        assert await task.result(30) == {"output": 7}


async def test_process_node_of_the_page_runs_in_a_process(shown: ModuleType) -> None:
    assert isinstance(shown.simulate, Node)
    pool = ProcessPool(1, {"simulate": locate(shown.simulate)})
    async with Bench([shown.simulate], processes=pool) as bench:
        run = await bench.run(bench.assignment("simulate", config_json='{"paths": 2}'))
    assert run.output == pytest.approx(0.42, abs=0.001)


async def test_tests_of_the_page_pass(shown: ModuleType) -> None:
    tests = [value for name, value in vars(shown).items() if name.startswith("test_")]
    assert len(tests) == 2
    for test in tests:
        await test()


def test_numbers_of_the_page_are_the_defaults() -> None:
    parameters = inspect.signature(Worker).parameters
    assert f"`capacity` ({CAPACITY})" in TEXT
    assert f"`thread_capacity` ({parameters['thread_capacity'].default})" in TEXT
    assert f"with {parameters['stuck_thread_limit'].default} of them (`stuck_thread_limit`)" in TEXT
    assert f"for `grace` seconds ({parameters['grace'].default:g})" in TEXT
    assert parameters["capacity"].default is parameters["process_capacity"].default is None


def test_secret_variable_of_the_page_has_the_right_name() -> None:
    (config,) = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    assert f"`{environment_name(json.loads(config)['key']['$secret'])}`" in TEXT
