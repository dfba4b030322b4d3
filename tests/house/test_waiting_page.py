"""docs/waiting.md is right: its node runs, its configs fit, its numbers are the limits."""

import asyncio
import json
import re
import textwrap
from datetime import timedelta
from typing import Any

from tests.house.project import ROOT
from tests.waiting import until
from tradewind.node_task_manager.domain import waiting
from tradewind.server.built_in import BUILT_IN
from tradewind.testing import run_node, running_stack
from tradewind.worker import Context, Node, Wait, node

PAGE = (ROOT / "docs" / "waiting.md").read_text(encoding="utf-8")


NODE, RECEIVER = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def shown_node() -> Node[..., Any]:
    """The page's node."""
    scope: dict[str, Any] = {"node": node, "Context": Context, "Wait": Wait, "timedelta": timedelta}
    exec(NODE, scope)
    shown = scope["pay"]
    assert isinstance(shown, Node)
    return shown


async def test_receiver_of_the_page_resumes_a_node_on_an_event() -> None:
    scope: dict[str, Any] = {}
    exec(f"async def receive(client):\n{textwrap.indent(RECEIVER, '    ')}", scope)
    async with running_stack([shown_node()]) as client:
        task = await client.submit_task("pay", {"euros": 5})

        async def waits() -> bool:
            return (await task.get()).wait is not None

        await until(waits, "it waits")
        receiving = asyncio.create_task(scope["receive"](client))

        async def listens() -> bool:
            return bool((await client.publish_event("payment", {"node_task_id": task.task_id})).matched)

        await until(listens, "somebody listens")
        assert (await task.wait(30)).outputs == {"receipt": "5.0 paid by default"}
        receiving.cancel()
        await asyncio.gather(receiving, return_exceptions=True)


async def test_node_of_the_page_waits() -> None:
    run = await run_node(shown_node(), euros=5)
    assert run.wait is not None
    assert (run.wait.signal, run.wait.delay) == ("paid", timedelta(hours=2))


def test_configs_of_the_page_are_valid() -> None:
    (approval,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    node_of_page = json.loads(approval)
    assert BUILT_IN["approval"].faults(node_of_page["config"]) == []
    (delay,) = re.findall(r'`(\{"type": "delay".*?\}\})`', PAGE)
    assert BUILT_IN["delay"].faults(json.loads(delay)["config"]) == []
    assert [name for name in BUILT_IN if f"node type `{name}`" not in PAGE] == []


def test_numbers_of_the_page_are_the_limits() -> None:
    assert f"up to {waiting.MAX_KEPT} of a node task and {waiting.MAX_KEPT_OF_RUN} of a run" in PAGE
    assert f"JSON of up to {waiting.MAX_PAYLOAD_BYTES // 1024} KiB" in PAGE
    assert f"the latest {waiting.MAX_REQUESTS} of the node task" in PAGE
