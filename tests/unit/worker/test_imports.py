"""The SDK imports only what all programs that use it need: each worker, and each process for nodes, begins with it."""

import subprocess
import sys

import pytest

HEAVY = ("jsonschema_rs", "prometheus_client", "pydantic", "redis", "rich", "structlog", "yaml", "opentelemetry.sdk")


@pytest.mark.parametrize("module", ["tradewind.client", "tradewind.flow", "tradewind.worker"])
def test_sdk_imports_nothing_heavy(module: str) -> None:
    program = f"import sys, {module}\nprint([name for name in {HEAVY!r} if name in sys.modules])"

    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "[]\n"
