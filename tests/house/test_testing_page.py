"""What docs/testing.md shows runs."""

import re
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.house.project import ROOT

CODE = "\n".join(
    re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(encoding="utf-8"), re.DOTALL)
)


def test_its_month_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A few days show the same as thirty.
    code = CODE.replace("days=30", "days=3").replace("720", "72").replace("== 30", "== 3")
    (tmp_path / "shown_in_testing.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    try:
        import_module("shown_in_testing").test_a_month()
    finally:
        sys.modules.pop("shown_in_testing", None)
