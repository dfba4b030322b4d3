"""Every line of the runbook in docs/operations.md, as it stands there, against a stack that has what it names."""

import platform
import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.house.project import ROOT
from tests.system.processes import NODES, Shell
from tests.system.test_real_clients import BIN, run
from tests.waiting import until
from tradewind.client import Client
from tradewind.flow import Flow, Retry
from tradewind.standalone import Standalone
from tradewind.worker import Worker, load_nodes

PAGE = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
RUNBOOK = PAGE.split("## Runbook\n")[1].split("\n## ")[0]
TASKS = re.findall(r"^\*\*(.+?)\*\*.*?```console\n(.*?)```", RUNBOOK, re.MULTILINE | re.DOTALL)
DEAD = "task:0a1b"
TELLS = {
    "Is it up?": ("SERVING", "prices"),
    "Which cycles run, and for how long?": ("CYCLE_STATUS_RUNNING", "running"),
    "Why does this node not run, or not end?": ("worker-1", "runs on worker worker-1"),
    "Why does this flow begin no cycle?": ("reasons", "it was never started"),
    "What happened in a cycle?": ("prices:", "gate"),
    "How much waits, of what and whose?": ("running", "running"),
    "Who works, and what does this worker hold?": ("prices:", "worker-1"),
    "Stop this node.": ("prices", "gate is "),
    "Stop this cycle.": ("prices", "prices"),
    "Run that again": ('"run": 1', "report"),
    "Let no cycle begin for a while": ("FLOW_STATUS_PAUSED", "report"),
    "Let them begin again.": ("FLOW_STATUS_RUNNING", "report"),
    "Stop a flow": ("FLOW_STATUS_STOPPED", "report"),
    "Change a limit": ('"max_running": 200', "200"),
    "What was given up?": (DEAD, DEAD),
    "Run a dead letter once more": ("task:", "task:"),
    "Which triggers were refused too often?": ("{", ""),
    "Is anything broken on record?": ("examined", "0 broken invariants"),
    "Send a worker home": ("WORKER_STATUS_DRAINING", "draining"),
}
"""What each line must print: that of grpcurl, that of the command."""


def test_each_task_has_one_line_of_each() -> None:
    assert [name for name, _ in TASKS] == list(TELLS)
    for name, block in TASKS:
        programs = [line.split()[1] for line in block.splitlines()]
        assert programs == ["grpcurl", "tradewind"], name


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="the wheel of grpcurl holds a Linux x86-64 program",
)
async def test_every_line_does_what_it_says(stack: Standalone, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with (
        Worker(load_nodes(NODES), address=stack.address, worker_id="worker-1"),
        Client(stack.address) as client,
    ):
        scene = Scene(client, gate)
        await scene.set()
        shell = Shell(stack.address)
        for name, block in TASKS:
            for line, tells in zip(block.splitlines(), TELLS[name], strict=True):
                await scene.ready_for(name)
                words = [word.replace(DEAD, scene.dead) for word in shlex.split(line.removeprefix("$ "))]
                if words[0] == "grpcurl":
                    words = [stack.address if word == "localhost:7700" else word for word in words[1:]]
                    code, out, err = await run(str(BIN / "grpcurl"), *words)
                    assert code == 0, (line, err)
                else:
                    out = await shell(*words[1:])
                assert tells.replace(DEAD, scene.dead) in out, (line, out)


class Scene:
    """What the lines name: a cycle that is stuck, one that failed, a dead letter."""

    def __init__(self, client: Client, gate: Path) -> None:
        self.dead = ""
        self._client = client
        self._gate = gate

    async def set(self) -> None:
        prices, report = Flow("prices", "1h"), Flow("report", "1h")
        total = prices.node("add", "total")
        prices.node("feed", "numbers")["numbers"] >> total["numbers"]
        total["total"] >> prices.node("gate", "gate", {"file": str(self._gate)})["total"]
        bad = report.node("bad", "failing")
        adds = report.node("add", "total")
        report.node("feed", "numbers")["numbers"] >> adds["numbers"]
        adds["total"] >> bad["total"]
        await self._client.register_flow("prices", prices)
        await self._client.register_flow("report", report)
        await self._client.run_flow("report")
        task = await self._client.submit_task("failing", {"total": 1}, retry=Retry(2, "1ms", jitter=0))
        self.dead = task.task_id

        async def given_up() -> bool:
            return [each async for each in self._client.list_dead_letters()] != []

        await until(given_up, "there is a dead letter")

    async def ready_for(self, task: str) -> None:
        """Bring about what a line acts on: the line before may have done away with it."""
        if task in ("Run that again", "Let no cycle begin for a while"):
            await until(self._report_has_ended, "the report has ended")
        if task == "Let no cycle begin for a while":
            await self._client.stop_flow("report")
            await self._client.start_flow("report")
        if task == "Let them begin again.":
            status = (await self._client.get_flow("report")).flow.status
            if status != "paused":
                await self._client.pause_flow("report")
        if task == "Stop a flow" and (await self._client.get_flow("report")).flow.status == "stopped":
            await self._client.start_flow("report")
        if task in ("Run that again", "Send a worker home", "Is anything broken on record?"):
            return
        await until(self._prices_are_stuck, "a cycle waits at the gate")

    async def _report_has_ended(self) -> bool:
        cycles = [each async for each in self._client.list_cycles("report")]
        return bool(cycles) and all(each.status != "running" for each in cycles)

    async def _prices_are_stuck(self) -> bool:
        cycles = [each async for each in self._client.list_cycles("prices")]
        if not any(each.status == "running" for each in cycles):
            await self._client.run_flow("prices")
            return False
        described = await self._client.cycle("prices", max(each.cycle for each in cycles)).describe()
        return any((each.node_id, each.status) == ("gate", "running") for each in described.nodes)
