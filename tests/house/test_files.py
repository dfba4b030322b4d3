"""Committed files can be cloned quickly and built anywhere."""

import re

from tests.house.project import ROOT, project_files

LARGEST = 1_000_000  # bytes

# Where packages come from is up to the machine: mirrors, proxies and air-gapped networks must all work.
REGISTRY = re.compile(
    rb"pypi\.org|pythonhosted\.org|registry\.npmjs|deb\.debian\.org|^\s*(?:--)?(?:extra-)?index-url\b", re.MULTILINE
)


def test_no_file_is_large() -> None:
    """No file in the repository is over 1 MB."""
    sizes = {str(name): (ROOT / name).stat().st_size for name in project_files()}

    assert {name: size for name, size in sizes.items() if size > LARGEST} == {}


def test_lines_of_scripts_fit_a_screen() -> None:
    """Lines of Lua are as long as lines of Python at most."""
    scripts = [name for name in project_files() if name.suffix == ".lua"]
    texts = {str(name): (ROOT / name).read_text(encoding="utf-8") for name in scripts}

    assert [name for name, text in texts.items() if any(len(line) > 120 for line in text.splitlines())] == []
    assert texts


def test_no_registry_address() -> None:
    """No file says where to fetch packages from."""
    assert [str(name) for name in project_files() if REGISTRY.search((ROOT / name).read_bytes())] == []


def test_constraints_are_exact_and_without_addresses() -> None:
    """Every constraint is one exact version of one package, so that later installs get what was tested."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    constraints = [line for line in lines if not line.startswith("#")]
    exact = re.compile(r"^[a-z0-9-]+==[\w.+!-]+( ; .+)?$")

    assert constraints
    assert [line for line in constraints if not exact.match(line)] == []
