"""The project that `tradewind init` writes works as it says."""

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.system.processes import Processes
from tradewind.standalone import Standalone


async def test_new_project_runs_by_its_own_instructions(stack: Standalone, started: Processes, tmp_path: Path) -> None:
    written = started.start("init", "my project", cwd=tmp_path)
    assert await written.ended() == 0
    enter, up, worker, *steps = [
        line.partition("#")[0].strip() for line in written.printed.partition("Next:\n")[2].splitlines()
    ]
    assert (enter, up, worker) == ("cd 'my project'", "tradewind up", "tradewind worker nodes")
    project = tmp_path / "my project"

    await started.start(*worker.split()[1:], address=stack.address, cwd=project).says("connected as")
    for step in steps:
        command = started.start(*step.split()[1:], address=stack.address, cwd=project)
        assert await command.ended() == 0, command.printed
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests = await asyncio.to_thread(subprocess.run, pytest, cwd=project, capture_output=True, text=True)
    assert "2 passed" in tests.stdout, tests.stdout + tests.stderr


async def test_init_overwrites_no_file(started: Processes, tmp_path: Path) -> None:
    (tmp_path / "test_nodes.py").write_text("mine", encoding="utf-8")

    refused = started.start("init", cwd=tmp_path)

    assert await refused.ended() == 2
    assert "test_nodes.py exists already, and nothing was written" in refused.printed
    assert sorted(path.name for path in tmp_path.glob("*.py")) == ["test_nodes.py"]


async def test_up_outside_the_repository_points_to_init(started: Processes, tmp_path: Path) -> None:
    up = started.start("up", "--port", "0", "--data", str(tmp_path / "data"), cwd=tmp_path)

    await up.says("grpcurl -plaintext")

    assert "tradewind init hello" in up.printed
    assert "examples.momentum" not in up.printed
