"""docs/explain.md lists exactly the codes of reasons."""

import re

from tests.house.project import ROOT
from tradewind.server.reasons import CODES


def test_page_lists_all_codes() -> None:
    page = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page, re.MULTILINE)
    listed = {code for row in rows for code in re.findall(r"`(\w+)`", row)}
    assert listed == set(CODES)
