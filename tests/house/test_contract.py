"""The released contract can grow but not break."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.house.project import ROOT

RELEASED = ROOT / "protos" / "released.binpb"
WORKER = Path("tradewind/api/registry/v1/worker.proto")


def breaking(root: Path) -> subprocess.CompletedProcess[str]:
    """Run `buf breaking` as `make lint` does, on the protos below `root`."""
    buf = shutil.which("buf", path=sysconfig.get_path("scripts"))
    assert buf, "buf is not installed: run `make setup-dev`"
    command = [buf, "breaking", "protos", "--against", str(RELEASED)]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    """A copy of the contract that tests may change."""
    shutil.copytree(ROOT / "protos", tmp_path / "protos")
    shutil.copy(ROOT / "buf.yaml", tmp_path)
    return tmp_path


def test_contract_is_compatible_with_the_release() -> None:
    """The protos still serve every client of the release."""
    outcome = breaking(ROOT)

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr


def test_removing_a_field_is_a_breaking_change(contract: Path) -> None:
    """A field that a client may read must stay."""
    proto = contract / "protos" / WORKER
    text, removed = re.subn(r"^  \S+ worker_id = 1;\n", "", proto.read_text(), count=1, flags=re.MULTILINE)
    assert removed == 1
    proto.write_text(text)

    outcome = breaking(contract)

    assert outcome.returncode != 0
    assert 'Previously present field "1" with name "worker_id" on message "Worker" was deleted' in outcome.stdout


def test_adding_a_field_is_not_a_breaking_change(contract: Path) -> None:
    """Adding to the contract is allowed."""
    proto = contract / "protos" / WORKER
    text, added = re.subn(
        r"^(message Worker \{\n)", r"\1  // New.\n  string added = 999;\n", proto.read_text(), flags=re.M
    )
    assert added == 1
    proto.write_text(text)

    outcome = breaking(contract)

    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
