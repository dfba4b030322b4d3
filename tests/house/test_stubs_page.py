"""The code of docs/stubs.md runs: against a stack, against a stand-in for one, and through a type checker."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.house.pages import module_of
from tests.house.project import ROOT
from tradewind.standalone import Standalone
from tradewind.worker import Worker, node

PAGE = (ROOT / "docs" / "stubs.md").read_text(encoding="utf-8")
CALLS, SCRIPT, TESTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(PRINTED,) = re.findall(r"\n\n```\n(.*?)```", PAGE, re.DOTALL)


@node("double")
async def double(value: int = 0) -> int:
    return 2 * value


@pytest.fixture
def shown(tmp_path: Path) -> Iterator[ModuleType]:
    """The page's calls and test as one module."""
    with module_of("shown_in_stubs", CALLS + TESTS, tmp_path) as module:
        yield module


async def test_script_of_the_page_prints_what_it_shows(tmp_path: Path) -> None:
    async with Standalone(data=tmp_path / "data", port=0) as stack, Worker([double], address=stack.address):
        script = f"ADDRESS = {stack.address!r}\n{CALLS}{SCRIPT}"
        ran = await asyncio.to_thread(
            subprocess.run, [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=tmp_path
        )
    assert ran.stdout == PRINTED, ran.stderr


def test_test_of_the_page_passes(shown: ModuleType) -> None:
    shown.test_double_runs_the_flow()


def test_code_of_the_page_passes_mypy(tmp_path: Path) -> None:
    (tmp_path / "shown.py").write_text(f'ADDRESS = "localhost:7700"\n{CALLS}{SCRIPT}{TESTS}', encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), str(tmp_path / "shown.py")]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert ran.returncode == 0, ran.stdout


def test_protos_import_only_protobufs_own() -> None:
    imports = {
        name
        for file in (ROOT / "protos").rglob("*.proto")
        for name in re.findall(r'^import "(.*)";', file.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert [name for name in imports if not name.startswith(("google/protobuf/", "tradewind/api/"))] == []
