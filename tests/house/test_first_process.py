"""Every program of Tradewind ends on SIGTERM while it imports, also as the first process of a container."""

import subprocess
import sys

import pytest

PROBE = """
import os, runpy, signal, sys
class Grpc:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            signal.raise_signal(signal.SIGTERM)
sys.meta_path.insert(0, Grpc())
os.getpid = lambda: 1
program = sys.argv[1]
sys.argv = ["tradewind", "flow", "list"]
runpy.run_module(program, run_name="__main__")
"""


@pytest.mark.parametrize(
    "program",
    [
        "tradewind.access",
        "tradewind.cli",
        "tradewind.node_task_manager",
        "tradewind.registry",
        "tradewind.scheduler",
        "tradewind.standalone",
        "tradewind.trigger",
    ],
)
def test_program_ends_on_sigterm_while_it_imports(program: str) -> None:
    probe = subprocess.run([sys.executable, "-c", PROBE, program], capture_output=True, text=True, check=False)
    # Without a handler it would be -15 here, and nothing would happen in a container.
    assert (probe.returncode, probe.stderr) == (143, "")
