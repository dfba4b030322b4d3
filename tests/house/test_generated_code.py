"""The committed generated code matches the protos, and the tool that checks this finds every fault."""

from pathlib import Path

import pytest

from tools import generate_protos
from tools.generate_protos import PACKAGE, differences, generate, write


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code generated from the protos, in a folder of its own."""
    folder = tmp_path_factory.mktemp("generated")
    generate(folder)
    return folder


def test_committed_code_is_up_to_date(generated: Path) -> None:
    """Generating it again changes nothing."""
    assert differences(generated, generate_protos.OUTPUT) == [], "run `make protos`"


def test_same_protos_give_the_same_bytes(generated: Path, tmp_path: Path) -> None:
    """Nothing depends on the machine, the time or the order of files."""
    generate(tmp_path)

    assert differences(generated, tmp_path) == []


def test_differences_are_named_and_fixed(generated: Path, tmp_path: Path) -> None:
    """Missing, changed and left-over files are each reported, and writing fixes all three."""
    write(generated, tmp_path)
    missing, changed, *_ = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*_pb2.py"))
    left_over = PACKAGE / "old" / "v1" / "old_pb2.py"
    (tmp_path / missing).unlink()
    (tmp_path / changed).write_text("# edited by hand\n")
    (tmp_path / left_over).parent.mkdir(parents=True)
    (tmp_path / left_over).touch()
    faults = [f"missing: {missing}", f"no proto stands behind it: {left_over}", f"differs: {changed}"]

    assert differences(generated, tmp_path) == faults
    assert write(generated, tmp_path) == faults
    assert differences(generated, tmp_path) == []
