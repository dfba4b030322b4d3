"""The code that runs depends only on declared packages, so `pip install .` alone is enough."""

import re
import sys
import tomllib
from importlib.metadata import packages_distributions

from tests.house.project import NAMESPACE_ROOTS, ROOT
from tests.house.test_layout import imported


def normal(name: str) -> str:
    """Return a distribution's name in the form that registries compare."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_import_is_declared() -> None:
    """No module of the wheel, and no example, imports a package that is installed only for the tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = {normal(re.split(r"[\[<>=!~; ]", requirement)[0]) for requirement in project["dependencies"]}
    own = {"tradewind", "examples"}
    providers = packages_distributions()

    undeclared = {
        f"{module.relative_to(ROOT)}: {name}"
        for root in (*NAMESPACE_ROOTS, ROOT / "examples")
        for module in root.rglob("*.py")
        for name in imported(module)
        if (package := name.partition(".")[0]) not in sys.stdlib_module_names | own
        and declared.isdisjoint(map(normal, providers.get(package, ())))
    }

    assert sorted(undeclared) == []
