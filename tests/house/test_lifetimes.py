"""How long keys are kept: docs/retention.md agrees with the tables in each service's `keys.py`."""

import re

from tests.house.project import ROOT
from tradewind.access.stores import keys as access
from tradewind.node_task_manager.stores import keys as node_task_manager
from tradewind.registry.stores import keys as registry
from tradewind.scheduler.stores import keys as scheduler
from tradewind.trigger.stores import keys as trigger

TABLES = {
    "{a<p>}": access.__doc__,
    "{f<p>}": scheduler.__doc__,
    "{registry}": registry.__doc__,
    "{s<k>}": node_task_manager.__doc__,
    "{t<p>}": trigger.__doc__,
}
UNLISTED = {
    *("{s<>}:cleaner", "{s<>}:replicas", "{s<>}:connected", "{s<>}:connected:<>"),
    *("{s<>}:retries:<>", "{s<>}:told:<>"),
}
"""Keys about presence and the last few minutes: they expire soon, and nobody would look for them."""

ROW = re.compile(r"^\| (?:\w.*? \| )?(?P<keys>`.+?`) \| (?:.* \| )?(?P<kept>.*) \|$")
"""Rows are `| key | kind | holds | until |` in a service, or `| what | key | kept |` on the page."""
COLUMNS = re.compile(r"^ *(?P<keys>[a-z][\w:<> ]*?) {2,}(?P<kept>\S.*)$")
TIME = re.compile(r"\b\d+ (?:ms|s|min|h|d)\b")


def times_of_keys(text: str, tag: str = "") -> dict[str, set[str]]:
    """Return each key of a table, without its ids, with the durations in its row."""
    rows = [row for line in text.splitlines() if (row := ROW.match(line) or COLUMNS.match(line))]
    named = [(name, TIME.findall(row["kept"])) for row in rows for name in row["keys"].replace("`", "").split(", ")]
    return {re.sub(r"<.*?>", "<>", tag + name): set(times) for name, times in named}


KEYS = {key: times for tag, text in TABLES.items() for key, times in times_of_keys(text or "", f"{tag}:").items()}


def page() -> dict[str, set[str]]:
    """Return the times in the table of the page."""
    whole = (ROOT / "docs/retention.md").read_text(encoding="utf-8")
    table = whole.partition("\n## How long what is kept\n")[2].partition("\n\nTwo fields of a flow")[0]
    return times_of_keys(table)


def test_page_lists_every_key_with_a_time_to_live() -> None:
    timed = {key for key, times in KEYS.items() if times}

    assert len(timed) > 30
    assert timed - page().keys() == UNLISTED


def test_times_on_the_page_match_the_key_tables() -> None:
    """The page names no unknown key either."""
    assert {key: times for key, times in page().items() if not KEYS.get(key, {"no such key"}) <= times} == {}
