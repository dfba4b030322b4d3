"""docs/doctor.md lists exactly the checks of each service."""

import re

import pytest

from tests.house.project import ROOT

FOUND = re.compile(r"""(?:found\(|Finding\()\s*["']([a-z-]+)["']""")
FITS = re.compile(r"\bfits\(")
"""A call of what `findings.lua` shares, which makes the check of keys of another type."""
HEADINGS = {
    "node_task_manager": "Node task manager",
    "scheduler": "Scheduler",
    "trigger": "Trigger service",
    "registry": "Registry",
    "access": "Access",
}


@pytest.mark.parametrize("service", HEADINGS)
def test_page_lists_the_checks_of_each_service(service: str) -> None:
    folder = ROOT / "services" / "tradewind" / service
    texts = [path.read_text(encoding="utf-8") for path in (*folder.rglob("*.lua"), *folder.rglob("doctor.py"))]
    made = {name for text in texts for name in FOUND.findall(text)}
    if any(map(FITS.search, texts)):
        made.add("key-of-another-type")
    page = (ROOT / "docs" / "doctor.md").read_text(encoding="utf-8")
    section = page.split(f"## {HEADINGS[service]}\n")[1].split("\n## ")[0]
    assert sorted(re.findall(r"^\| `([a-z-]+)`", section, re.MULTILINE)) == sorted(made)
