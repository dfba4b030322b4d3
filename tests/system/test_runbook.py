"""Every line of docs/runbook.md, as written there, against a stack that has what the lines name."""

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
from tradewind.client import Client, Role
from tradewind.flow import Flow, Retry
from tradewind.standalone import Standalone
from tradewind.worker import Worker, load_nodes

RUNBOOK, GUARDED = (ROOT / "docs/runbook.md").read_text(encoding="utf-8").split("\n## Where access is on\n")
TASK = re.compile(r"^\*\*(.+?)\*\*.*?```console\n(.*?)```", re.MULTILINE | re.DOTALL)
TASKS, GUARDED_TASKS = TASK.findall(RUNBOOK), TASK.findall(GUARDED)
DEAD, BATCH, JOB = "task:0a1b", "8be0f2", "job-0a1b"
"""Ids that are known only once a stack runs."""
WAITS = 'waits for cycle 0 of flow \\"feeds\\"'
EXPECTED = {
    "Is it up?": ("SERVING", "prices"),
    "Which cycles run, and for how long?": ("CYCLE_STATUS_RUNNING", "running"),
    "Why does this node not run, or not end?": ("worker-1", "running on worker worker-1"),
    "Why does this flow begin no cycle?": ("reasons", "it was never started"),
    "What happened in a cycle?": ("prices:", "gate"),
    "Which cycle does a node that runs a flow wait for?": (WAITS, WAITS.replace('\\"', '"')),
    "How much waits, of what and whose?": ("running", "running"),
    "Who works, and what does this worker hold?": ("prices:", "worker-1"),
    "Stop this node.": ("prices", "gate is "),
    "Stop this cycle.": ("prices", "prices"),
    "Run that again": ('"run": 1', "report"),
    "Run again what failed of many flows": ("BULK_ACTION_RERUN", " rerun "),
    "Stop what runs of many flows": ("BULK_ACTION_STOP", " stop "),
    "How far is a job?": (JOB, JOB),
    "End a job": (JOB, JOB),
    "Run what was missed in the past": ('"times": 3', "3 planned times"),
    "How far is a backfill?": ("2024-03-01T03:00:00Z", "2024-03-01"),
    "Begin no more of a backfill": ('"backfill_id": 1', "backfill 1 of report"),
    "Which batches are there, and how far are they?": (BATCH, BATCH),
    "Cancel a batch": ("wrong file", BATCH),
    "Delete a batch that has ended": ("{", f"batch {BATCH} deleted"),
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
"""The text that each line must print: that of grpcurl, and that of the command."""
GUARDED_EXPECTED = {
    "Who is on record, and as what?": ("ROLE_USER", "ann"),
    "What does somebody have that is still good?": ("laptop", "laptop"),
    "Lock somebody out": ('"count": 1', "revoked 1"),
    "Change what somebody may": ("ROLE_OPERATOR", "ann is user"),
    "Give a pool of workers a token": ("tw_", "tw_"),
    "How much of the day's quotas has somebody used?": ('"endpoint": "RunFlow"', "RunFlow"),
    "Is anything broken on record of access?": ("examined", "0 broken invariants"),
}

needs_grpcurl = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64",
    reason="the wheel of grpcurl holds a Linux x86-64 program",
)


def test_each_runbook_task_has_a_grpcurl_and_a_tradewind_line() -> None:
    assert [name for name, _ in TASKS] == list(EXPECTED)
    assert [name for name, _ in GUARDED_TASKS] == list(GUARDED_EXPECTED)
    for name, block in TASKS + GUARDED_TASKS:
        programs = [line.split()[1] for line in block.splitlines()]
        assert programs == ["grpcurl", "tradewind"], name


async def run_line(line: str, address: str, placeholders: dict[str, str]) -> str:
    """Run a line against a stack, with its placeholders filled in; return its output."""
    arguments = shlex.split(line.removeprefix("$ "))
    for placeholder, value in {**placeholders, "localhost:7700": address}.items():
        arguments = [word.replace(placeholder, value) for word in arguments]
    program, *rest = arguments
    if program == "tradewind":
        return await Shell(address)(*rest)
    code, out, err = await run(str(BIN / "grpcurl"), *rest)
    assert code == 0, (line, err)
    return out


@needs_grpcurl
async def test_runbook_lines_print_what_they_promise(stack: Standalone, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with (
        Worker(load_nodes(NODES), address=stack.address, worker_id="worker-1"),
        Client(stack.address) as client,
    ):
        scene = Scene(client, gate)
        await scene.set_up()
        for name, block in TASKS:
            for line, expected in zip(block.splitlines(), EXPECTED[name], strict=True):
                await scene.prepare(name)
                out = await run_line(line, stack.address, scene.ids)
                for placeholder, value in scene.ids.items():
                    expected = expected.replace(placeholder, value)
                assert expected in out, (line, out)
        gate.touch()


@needs_grpcurl
async def test_runbook_lines_about_access_print_what_they_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRADEWIND_QUOTAS", "RunFlow=3")
    async with Standalone(data=tmp_path / "data", port=0, auth=True) as stack:
        token = stack.new_admin_token
        assert token is not None
        monkeypatch.setenv("TRADEWIND_TOKEN", token)
        async with Client(stack.address, token=token) as admin:
            for name, block in GUARDED_TASKS:
                for line, expected in zip(block.splitlines(), GUARDED_EXPECTED[name], strict=True):
                    if name in ("What does somebody have that is still good?", "Lock somebody out"):
                        await admin.revoke_sessions("ann")
                        await admin.create_token("ann", label="laptop")
                    elif name == "Who is on record, and as what?":
                        await admin.set_user("ann", Role.USER)
                    out = await run_line(line, stack.address, {"$TRADEWIND_TOKEN": token})
                    assert expected in out, (line, out)


class Scene:
    """What the lines name: cycles that are stuck, a cycle that waits, a failed one, a dead letter, a batch, a job."""

    def __init__(self, client: Client, gate: Path) -> None:
        self.ids: dict[str, str] = {}
        self._client = client
        self._gate = gate

    async def set_up(self) -> None:
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
        feeds, desk = Flow("feeds", "1h", overlap="allow"), Flow("desk", "1h", overlap="allow")
        feeds.node("gate", "gate", {"file": str(self._gate)})
        desk.sub_flow("inner", "feeds")
        await self._client.register_flow("feeds", feeds)
        await self._client.register_flow("desk", desk)
        await self._client.run_flow("desk")
        task = await self._client.submit_task("failing", {"total": 1}, retry=Retry(2, "1ms", jitter=0))
        batch = await self._client.submit_batch("gate", [{"file": str(self._gate)}])
        job = await self._client.start_bulk_job("stop", ["nothing*"])
        self.ids = {DEAD: task.task_id, BATCH: batch.batch_id, JOB: job.job_id}

        async def given_up() -> bool:
            return [each async for each in self._client.list_dead_letters()] != []

        await until(given_up, "there is a dead letter")
        await until(self._desk_waits, "the node of desk waits for its cycle of feeds")

    async def prepare(self, task: str) -> None:
        """Bring about what a line acts on, since an earlier line may have removed it."""
        if task in ("Run that again", "Let no cycle begin for a while"):
            await until(self._report_has_ended, "the report has ended")
        if task == "Let no cycle begin for a while":
            await self._client.stop_flow("report")
            await self._client.start_flow("report")
        if task == "Let them begin again.":
            status = (await self._client.get_flow("report")).flow.status
            if status != "paused":
                await self._client.pause_flow("report")
        if task == "Delete a batch that has ended":
            batch = await self._client.submit_batch("numbers", [{}])
            await batch.wait()
            self.ids[BATCH] = batch.batch_id
        if task == "Stop a flow" and (await self._client.get_flow("report")).flow.status == "stopped":
            await self._client.start_flow("report")
        if task in ("Run that again", "Send a worker home", "Is anything broken on record?"):
            return
        await until(self._prices_are_stuck, "a cycle waits at the gate")

    async def _report_has_ended(self) -> bool:
        cycles = [each async for each in self._client.list_cycles("report")]
        return bool(cycles) and all(each.status != "running" for each in cycles)

    async def _desk_waits(self) -> bool:
        reasons = await self._client.explain_node("desk", "inner")
        return any("waits for cycle 0" in each.sentence for each in reasons)

    async def _prices_are_stuck(self) -> bool:
        cycles = [each async for each in self._client.list_cycles("prices")]
        if not any(each.status == "running" for each in cycles):
            await self._client.run_flow("prices")
            return False
        described = await self._client.cycle("prices", max(each.cycle for each in cycles)).describe()
        return any((each.node_id, each.status) == ("gate", "running") for each in described.nodes)
