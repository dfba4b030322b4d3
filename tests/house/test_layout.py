"""The `tradewind` namespace spans two roots, and its parts look alike."""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

from tests.house.project import NAMESPACE_ROOTS, ROOT, parts

API = ROOT / "libs" / "tradewind" / "api"

# What a domain may use beside the standard library: values and names, nothing that waits, sends or stores.
PURE = {
    "msgspec",
    "msgspec.structs",
    "tradewind.server.access.roles",
    "tradewind.server.built_in",
    "tradewind.server.built_in.approvals",
    "tradewind.server.built_in.forms",
    "tradewind.server.durations",
    "tradewind.server.faults",
    "tradewind.server.hidden_values",
    "tradewind.server.identifiers",
    "tradewind.server.json_types",
    "tradewind.server.nearest_name",
    "tradewind.server.partitions",
    "tradewind.server.quoting",
    "tradewind.server.rates",
    "tradewind.server.schedules.event_filter",
    "tradewind.server.schedules.grids",
    "tradewind.server.schedules.jitter",
    "tradewind.server.schedules.schedule",
    "tradewind.server.sizes",
}
# Modules of the standard library that would bring in a clock, chance, the environment or an event loop.
IMPURE = {"asyncio", "logging", "os", "random", "secrets", "socket", "subprocess", "threading", "time", "uuid"}


def imported(module: Path) -> set[str]:
    """Return the modules that a Python file imports, by their full names."""
    names: set[str] = set()
    for statement in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(statement, ast.Import):
            names |= {alias.name for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            names.add(statement.module or "")
    return names


def test_the_namespace_has_no_init_of_its_own() -> None:
    """An `__init__.py` there would hide the other root from Python."""
    forbidden = [root / "__init__.py" for root in NAMESPACE_ROOTS] + sorted(API.rglob("__init__.py"))

    assert [str(path.relative_to(ROOT)) for path in forbidden if path.exists()] == []


@pytest.mark.parametrize("part", sorted(set(parts()) - {"tradewind.api"}))
def test_a_part_is_a_typed_package(part: str) -> None:
    """Each package below a part has an `__init__.py`, and packages that users import are marked as typed."""
    folder = parts()[part]
    packages = {path.parent for path in folder.rglob("*.py")}
    expected = [package / "__init__.py" for package in sorted(packages)]
    if folder.parent == NAMESPACE_ROOTS[0]:
        expected.append(folder / "py.typed")

    assert [str(path.relative_to(ROOT)) for path in expected if not path.exists()] == []


def test_every_part_is_under_import_contracts() -> None:
    """A part that import-linter does not know could import anything."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert settings["tool"]["importlinter"]["root_packages"] == sorted(parts())


DOMAINS = sorted(NAMESPACE_ROOTS[1].glob("*/domain/**/*.py"))


@pytest.mark.parametrize("module", DOMAINS, ids=lambda module: str(module.relative_to(NAMESPACE_ROOTS[1])))
def test_a_domain_is_pure(module: Path) -> None:
    """A domain uses only the standard library (without clocks and chance), msgspec, itself, and shared values."""
    own = ".".join(("tradewind", *module.relative_to(NAMESPACE_ROOTS[1]).parts[:2]))
    foreign = {
        name
        for name in imported(module)
        if not (name == own or name.startswith(f"{own}.") or name in PURE)
        and (name.partition(".")[0] not in sys.stdlib_module_names or name.partition(".")[0] in IMPURE)
    }

    assert foreign == set()
