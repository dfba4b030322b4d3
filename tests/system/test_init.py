"""The project that `tradewind init` writes works as it says."""

import asyncio
import subprocess
import sys
from pathlib import Path

from tests.system.processes import Processes
from tradewind.standalone import Standalone


async def test_new_project_runs_by_its_own_instructions(
    stack: Standalone, processes: Processes, tmp_path: Path
) -> None:
    written = processes.start("init", "my project", cwd=tmp_path)
    assert await written.wait_for_exit() == 0
    enter, up, worker, *steps = [
        line.partition("#")[0].strip() for line in written.output.partition("Next:\n")[2].splitlines()
    ]
    assert (enter, up, worker) == ("cd 'my project'", "tradewind up", "tradewind worker nodes")
    project = tmp_path / "my project"

    await processes.start(*worker.split()[1:], address=stack.address, cwd=project).wait_for_output("connected as")
    for step in steps:
        command = processes.start(*step.split()[1:], address=stack.address, cwd=project)
        assert await command.wait_for_exit() == 0, command.output
    pytest = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests = await asyncio.to_thread(subprocess.run, pytest, cwd=project, capture_output=True, text=True)
    assert "2 passed" in tests.stdout, tests.stdout + tests.stderr


async def test_init_overwrites_no_file(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "test_nodes.py").write_text("mine", encoding="utf-8")

    refused = processes.start("init", cwd=tmp_path)

    assert await refused.wait_for_exit() == 2
    assert "test_nodes.py exists already, and nothing was written" in refused.output
    assert sorted(path.name for path in tmp_path.glob("*.py")) == ["test_nodes.py"]


async def test_init_refuses_file_for_a_directory(processes: Processes, tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine", encoding="utf-8")

    for name in ("notes", "notes/hello"):
        refused = processes.start("init", name, cwd=tmp_path)
        assert await refused.wait_for_exit() == 2
        assert "error: notes is not a directory: name another one" in refused.output


async def test_directory_that_looks_like_an_option_can_be_entered_as_told(processes: Processes, tmp_path: Path) -> None:
    written = processes.start("init", "--", "-hello", cwd=tmp_path)

    assert await written.wait_for_exit() == 0
    assert "\n  cd ./-hello  " in written.output


async def test_up_outside_the_repository_points_to_init(processes: Processes, tmp_path: Path) -> None:
    up = processes.start("up", "--port", "0", "--data", str(tmp_path / "data"), cwd=tmp_path)

    await up.wait_for_output("grpcurl -plaintext")

    assert "tradewind init hello" in up.output
    assert "examples.momentum" not in up.output


async def test_up_in_a_project_does_not_ask_for_another(processes: Processes, tmp_path: Path) -> None:
    assert await processes.start("init", cwd=tmp_path).wait_for_exit() == 0
    up = processes.start("up", "--port", "0", "--data", str(tmp_path / "data"), cwd=tmp_path)

    await up.wait_for_output("grpcurl -plaintext")

    assert "tradewind init" not in up.output
