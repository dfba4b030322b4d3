"""Which nodes a process of its own can find, and the messages about those that it cannot."""

import functools
import sys
import types
from typing import Any

import pytest

from tradewind.testing import run_node
from tradewind.worker import Node, Worker, WorkerError, node, processes
from tradewind.worker.errors import NodeDefinitionError, NodeFault
from tradewind.worker.processes.targets import Target, locate


@node("double", process=True)
def double(value: int) -> int:
    return value * 2


def triple(value: int) -> int:
    return value * 3


tripled = node("triple", process=True)(functools.partial(triple))
listed = [node("listed", process=True)(triple)]


def test_node_is_located_by_its_name_in_module() -> None:
    assert locate(double) == Target(__name__, "double")
    assert locate(tripled) == Target(__name__, "tripled")
    assert Target(__name__, "double").load("double") is double


def test_process_node_without_module_level_name_is_refused() -> None:
    @node("inner", process=True)
    def inner() -> None: ...

    for nameless, name in ((inner, r"test_\S+inner"), (listed[0], "triple")):
        with pytest.raises(WorkerError, match=rf'node "\w+" \({name}\): with process=True .* top level of a module'):
            Worker([nameless])
    assert Worker([inner], process_capacity=0).nodes == [inner]


def test_process_node_in_main_module_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    program: Any = types.ModuleType("__main__")

    def run() -> None: ...

    run.__module__ = "__main__"
    program.run = node("run", process=True)(run)
    monkeypatch.setitem(sys.modules, "__main__", program)

    with pytest.raises(NodeDefinitionError, match=r"declared in the program itself.* move it into a module, import it"):
        Worker([program.run])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (
            Target("tests.nowhere", "node"),
            "module tests.nowhere cannot be imported in a process of its own: ModuleNotF",
        ),
        (
            Target(__name__, "missing"),
            f"{__name__}.missing is the node double in the worker, but not in a process of its own",
        ),
        (
            Target(__name__, "triple"),
            f"{__name__}.triple is the node double in the worker, but not in a process of its own",
        ),
        (
            Target(__name__, "tripled"),
            f"{__name__}.tripled is the node double in the worker, but not in a process of its own",
        ),
    ],
)
def test_target_that_differs_in_process_is_a_fault(target: Target, message: str) -> None:
    with pytest.raises(NodeFault) as caught:
        target.load("double")
    assert caught.value.message.startswith(message)


async def test_serving_on_import_in_child_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "in_child", True)

    with pytest.raises(WorkerError, match='put the code that runs the worker under if __name__ == "__main__"'):
        await Worker([double]).serve()


async def test_run_node_runs_process_node_in_same_process() -> None:
    @node("inner", process=True)
    def inner(value: int) -> int:
        seen.append(value)
        return value

    seen: list[int] = []
    assert (await run_node(inner, value=3)).output == 3
    assert seen == [3]
    assert isinstance(inner, Node)
    assert inner.process


def test_negative_process_capacity_is_refused() -> None:
    with pytest.raises(ValueError, match="process_capacity must be at least 0, is -1"):
        Worker([double], process_capacity=-1)
