"""The direction of imports, as the contracts in pyproject.toml state it."""

import shutil
import subprocess
import sysconfig

from tests.house.project import ROOT


def test_import_contracts_are_kept() -> None:
    """Services meet only in the contract, layers depend inwards, and only one part knows every service."""
    linter = shutil.which("lint-imports", path=sysconfig.get_path("scripts"))
    assert linter, "lint-imports is not installed: run `make setup-dev`"

    outcome = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
