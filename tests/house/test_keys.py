"""Keys of the store: one grammar for all, and one table per service that formats them."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.house.project import ROOT, project_files
from tradewind.access.stores import keys as access
from tradewind.node_task_manager.stores import keys as node_task_manager
from tradewind.registry.stores import keys as registry
from tradewind.scheduler.stores import keys as scheduler
from tradewind.trigger.stores import keys as trigger

PREFIX = "elsewhere"
TABLES: dict[str, tuple[Any, str]] = {
    "scheduler": (scheduler.Keys(PREFIX), r"\{f\d+\}"),
    "node_task_manager": (node_task_manager.Keys(PREFIX, 3), r"\{s3\}"),
    "registry": (registry.Keys(PREFIX), r"\{registry\}"),
    "access": (access.Keys(PREFIX), r"\{a\d+\}"),
    "trigger": (trigger.Keys(PREFIX), r"\{t\d+\}"),
}
SAMPLES = {"partition": 7, "shard": 3, "cycle": 4, "run": 0, "revision": 2, "backfill_id": 5}


def formatted(table: Any) -> list[str]:
    """Return every key that a table holds or makes from sample arguments; a table that it makes is one of its own."""
    members = [member for name, member in inspect.getmembers(table) if not name.startswith("_")]
    made = [_call(member) for member in members if inspect.ismethod(member)]
    return [key for key in members + made if isinstance(key, str)]


def _call(method: Callable[..., Any]) -> Any:
    return method(*(SAMPLES.get(name, "a_b-c.d") for name in inspect.signature(method).parameters))


OF_A_QUEUE = (trigger.Keys(PREFIX, "reports"), r"\{t\d+\}")


@pytest.mark.parametrize("table_and_tag", [*TABLES.values(), OF_A_QUEUE], ids=[*TABLES, "trigger of a queue"])
def test_every_key_is_prefix_tag_entity_and_id(table_and_tag: tuple[Any, str]) -> None:
    """Keys are `<prefix>:{<tag>}:<entity>[:<id>[:<sub>]]`, with the configured prefix and one tag, whatever the ids."""
    table, tag = table_and_tag
    keys = formatted(table)

    assert len(keys) > 2
    assert [key for key in keys if not re.fullmatch(rf"{PREFIX}:{tag}:([A-Za-z0-9_.-]+:?)*", key)] == []


def test_only_tables_of_keys_know_tags() -> None:
    """A key formatted elsewhere would escape its table, its ACL pattern and its retention."""
    builds = re.compile(r"\{\{?(?:registry|[afst]\{\w+\})\}")
    builders = [
        str(path)
        for path in project_files()
        if path.suffix in (".py", ".lua") and path.parts[0] in ("libs", "services")
        if builds.search((ROOT / path).read_text(encoding="utf-8"))
    ]

    assert builders == [f"services/tradewind/{service}/stores/keys.py" for service in sorted(TABLES)]
