"""Finding nodes by the name of a module, and the messages when there are none."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tradewind.worker import load_nodes
from tradewind.worker.errors import NodeLoadError
from tradewind.worker.loading import load_flow

NODES = """
from tradewind.worker import Worker, node

@node("second")
async def beta() -> None: ...

@node("first")
def alpha() -> None: ...

again = beta
some = [alpha]
worker = Worker([beta], worker_id="w")
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current directory, empty; its modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def types(target: str) -> list[str]:
    return [node.type for node in load_nodes(target)]


def test_nodes_of_module_are_loaded_in_order(folder: Path) -> None:
    (folder / "shop_nodes.py").write_text(NODES)

    assert types("shop_nodes") == ["second", "first"]
    assert types("shop_nodes:alpha") == ["first"]
    assert types("shop_nodes:some") == ["first"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("shop_nodes:alpa", 'module shop_nodes has no alpa; did you mean "alpha"?'),
        ("shop_nodes:number", "shop_nodes:number is an int, not a node or a list of nodes"),
        ("shop_nodes:worker", "shop_nodes:worker is a Worker, whose settings would be lost here: give its nodes"),
        ("empty_nodes", "module empty_nodes (empty_nodes.py) has no nodes: decorate its functions with @node(...)"),
        ("sys", "module sys (built in) has no nodes: decorate its functions with @node(...)"),
        ("desk", "module desk (desk/__init__.py) has no nodes: did you mean desk.flows or desk.nodes?"),
        ("bare", "module bare (bare) has no nodes: did you mean bare.nodes?"),
        ("no.such.module", "there is no module no in the current directory"),
        ("shop_nodes.py", '"shop_nodes.py" is not the name of a module: write it as in an import, such as shop_nodes'),
        ("desk.nodes.py", '"desk.nodes.py" is not the name of a module: write it as in an import, such as desk.nodes'),
        (
            "./desk/nodes.py:a",
            '"./desk/nodes.py" is not the name of a module: write it as in an import, such as desk.n',
        ),
        ("../desk", '"../desk" is not the name of a module: write it as in an import, such as examples.nodes'),
        ("", '"" is not the name of a module'),
        ("shop_nodes:", "which name of module shop_nodes? Write it after the colon"),
        ("needy_nodes", "module needy_nodes needs not_installed, which is not installed"),
        (
            "broken_nodes",
            "module broken_nodes cannot be imported: ZeroDivisionError: division by zero (broken_",
        ),
        (
            "deep_nodes",
            "module deep_nodes cannot be imported: JSONDecodeError: Expecting value: line 1 col",
        ),
        ("twice_nodes", 'module twice_nodes: two nodes have the type "first": <node first: alpha> and <node first: '),
        ("mute_nodes", "module mute_nodes cannot be imported: ValueError: (no message) (mute_nodes.py:1)"),
        ("typo_nodes", "module typo_nodes cannot be imported: SyntaxError: "),
        (
            "running_nodes",
            "module running_nodes: importing it would start a worker: put the code that runs the worker under "
            'if __name__ == "__main__"',
        ),
        ("wrong_nodes", 'module wrong_nodes: node "x" (sums): parameter *values cannot be filled by name'),
    ],
)
def test_load_error_says_what_is_wrong(folder: Path, target: str, message: str) -> None:
    (folder / "shop_nodes.py").write_text(NODES)
    (folder / "twice_nodes.py").write_text(NODES + "other = node('first')(lambda: 2)\n")
    (folder / "desk").mkdir()
    (folder / "bare").mkdir()
    for name in ("desk/__init__", "desk/_private", "desk/flows", "desk/nodes", "bare/nodes"):
        (folder / f"{name}.py").write_text("")
    (folder / "empty_nodes.py").write_text("")
    (folder / "needy_nodes.py").write_text("import not_installed")
    (folder / "broken_nodes.py").write_text("import json\n1 / 0")
    (folder / "deep_nodes.py").write_text("import settled")
    (folder / "settled.py").write_text("import json\njson.loads('x')")
    (folder / "mute_nodes.py").write_text("raise ValueError")
    (folder / "typo_nodes.py").write_text("def :")
    (folder / "running_nodes.py").write_text(NODES + "worker.run()\n")
    (folder / "wrong_nodes.py").write_text("from tradewind.worker import node\n@node('x')\ndef sums(*values): ...\n")

    with pytest.raises(NodeLoadError) as refused:
        load_nodes(target)
    assert str(refused.value).startswith(message)
    # The line in the user's own code, not in the library that it called.
    place = {"broken_nodes": "(broken_nodes.py:2)", "deep_nodes": "(settled.py:2)"}.get(target, "")
    assert str(refused.value).endswith(place)


def test_module_that_hides_another_in_the_current_directory_is_named(folder: Path) -> None:
    (folder / "random.py").write_text(NODES)

    with pytest.raises(NodeLoadError) as refused:
        load_nodes("random")
    assert str(refused.value) == (
        f"module random ({random.__file__}) has no nodes, and random.py cannot be imported by that name: rename it"
    )


def test_load_flow_returns_flow_named_by_attribute(folder: Path) -> None:
    (folder / "shop_flows.py").write_text(
        "from tradewind.flow import Flow\nrestock = Flow('restock')\nnumber, some = 3, []\n"
    )

    assert load_flow("shop_flows:restock").flow_id == "restock"
    for target, message in (
        ("shop_flows:number", "shop_flows:number is an int, not a Flow"),
        ("shop_flows:some", "shop_flows:some is a list, not a Flow"),
        ("shop_flows:restok", 'module shop_flows has no restok; did you mean "restock"?'),
        ("shop_flows:reserve", "module shop_flows has no reserve; choose from restock"),
        ("random:restock", "module random has no restock, and no flow either"),
        ("shop_flow:restock", "there is no module shop_flow in the current directory"),
    ):
        with pytest.raises(NodeLoadError) as refused:
            load_flow(target)
        assert str(refused.value).startswith(message)


THREADED = """
import asyncio, threading

def serve():
    try:
        asyncio.run(asyncio.wait_for(worker.serve(), 1))
    except Exception as error:
        refusals.append(str(error))

def serve_later():
    later.wait()
    serve()

refusals, later = [], threading.Event()
threads = [threading.Thread(target=serve_later), threading.Thread(target=serve)]
for thread in threads:
    thread.start()
threads[1].join()
"""


def test_thread_of_an_import_may_not_serve_then_or_later(folder: Path) -> None:
    (folder / "threaded_nodes.py").write_text(NODES + THREADED)

    load_nodes("threaded_nodes")
    module = sys.modules["threaded_nodes"]
    module.later.set()
    module.threads[0].join()

    assert [text.partition(":")[0] for text in module.refusals] == ["importing it would start a worker"] * 2
