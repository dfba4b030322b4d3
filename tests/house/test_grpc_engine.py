"""Every program of Tradewind chooses how grpc waits for events before grpc is loaded."""

import subprocess
import sys

import pytest

PROBE = """
import importlib, os, sys
class Grpc:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            sys.exit(" ".join(os.environ.get(f"GRPC_{name}", "?") for name in ("EXPERIMENTS", "VERBOSITY")))
sys.meta_path.insert(0, Grpc())
sys.argv = ["tradewind", "flow", "list"]
loaded = importlib.import_module(sys.orig_argv[-1])
if hasattr(loaded, "main"):
    loaded.main()
"""


@pytest.mark.parametrize(
    "program",
    [
        "tradewind.cli",
        "tradewind.client",
        "tradewind.node_task_manager.__main__",
        "tradewind.access.__main__",
        "tradewind.registry.__main__",
        "tradewind.scheduler.__main__",
        "tradewind.standalone.__main__",
        "tradewind.trigger.__main__",
        "tradewind.worker",
    ],
)
def test_engine_and_its_logs_are_chosen_before_grpc_is_loaded(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRPC_EXPERIMENTS", raising=False)
    monkeypatch.delenv("GRPC_VERBOSITY", raising=False)
    probe = subprocess.run([sys.executable, "-c", PROBE, program], capture_output=True, text=True, check=False)
    assert probe.stderr.strip() == "-event_engine_client,-event_engine_listener ERROR"
