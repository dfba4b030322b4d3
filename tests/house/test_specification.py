"""Every row of docs/specification.md leads to a test, or says how else it is met."""

import re

import pytest

from tests.house.project import ROOT

ROW = re.compile(r"^\| *(?P<requirement>[A-Z]+\d+) *\| *(?P<held_by>.*?) *\|$")
REFERENCE = re.compile(r"tests/[\w./-]+\.py(?:::\w+)?")
OTHERWISE = re.compile(r"^met otherwise: \S")


def table() -> list[str]:
    """Return the rows of every table in the document, without headers and rulers."""
    lines = (ROOT / "docs" / "specification.md").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.startswith("|") and not re.match(r"^\|[ :-]*(requirement|-)", line)]


def faults(line: str) -> list[str]:
    """Return the faults of one row."""
    row = ROW.match(line)
    if row is None:
        return ["not of the form `| R001 | tests/... |`"]
    held_by = row["held_by"].replace("`", "")
    if OTHERWISE.match(held_by):
        return []
    references = REFERENCE.findall(held_by)
    if not references:
        return ["neither a test module nor `met otherwise: ` and the reason"]
    return [fault for reference in references for fault in reference_faults(reference)]


def reference_faults(reference: str) -> list[str]:
    """Return the faults of one `tests/....py` or `tests/....py::test_name`."""
    module, _, name = reference.partition("::")
    path = ROOT / module
    if not path.is_file():
        return [f"no such file: {module}"]
    text = path.read_text(encoding="utf-8")
    if name and not re.search(rf"^\s*(async )?(def|class) {name}\b", text, re.MULTILINE):
        return [f"no such test in {module}: {name}"]
    return [] if "def test_" in text or "TestCase" in text else [f"no test in it: {module}"]


def test_every_row_names_existing_tests() -> None:
    """Each row names existing test modules or gives a reason."""
    assert [f"{line}  <- {fault}" for line in table() for fault in faults(line)] == []


def test_every_requirement_has_one_row() -> None:
    """Two rows for one requirement would drift apart."""
    requirements = [row["requirement"] for row in map(ROW.match, table()) if row]

    assert requirements
    assert sorted({name for name in requirements if requirements.count(name) > 1}) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("| R001 | tests/house/test_specification.py |", None),
        ("| R001 | `tests/house/test_specification.py::test_faults_of_rows_are_found` |", None),
        ("| R001 | met otherwise: Redis keeps it |", None),
        ("| R001 | met otherwise: |", "neither"),
        ("| R001 | soon |", "neither"),
        ("| R001 | tests/house/test_nothing.py |", "no such file"),
        ("| R001 | tests/house/project.py |", "no test in it"),
        ("| R001 | tests/house/test_docs.py::test_nothing |", "no such test"),
        ("| first | tests/house/test_docs.py |", "not of the form"),
    ],
)
def test_faults_of_rows_are_found(line: str, fault: str | None) -> None:
    """Rows that lead nowhere are told from rows that lead to a test."""
    found = faults(line)

    assert found == [] if fault is None else fault in found[0]
