"""The code of docs/testing.md runs."""

import re
from pathlib import Path

from tests.house.pages import module_of
from tests.house.project import ROOT

CODE = "\n".join(
    re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "testing.md").read_text(encoding="utf-8"), re.DOTALL)
)


def test_simulated_month_of_the_page_passes(tmp_path: Path) -> None:
    # A few days show as much as thirty.
    code = CODE.replace("days=30", "days=3").replace("720", "72").replace("== 30", "== 3")
    with module_of("shown_in_testing", code, tmp_path) as shown:
        shown.test_a_month()
