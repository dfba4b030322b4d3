"""The dashboard and the alerts read existing metrics and labels, with the thresholds of the specification."""

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import promql_parser
import pytest
import yaml
from prometheus_client import Counter, Histogram

from tests.house.project import ROOT
from tradewind.server.metrics import REGISTRY

for module in ("scheduler", "node_task_manager", "trigger", "worker", "server.redis.watch"):
    importlib.import_module(f"tradewind.{module}" if "." in module else f"tradewind.{module}.metrics")

FOLDER = ROOT / "k8s" / "components" / "monitoring"
PAGE = (ROOT / "docs" / "observability.md").read_text(encoding="utf-8")
RULES = [rule for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"] for rule in group["rules"]]
ALERTS = {rule["alert"]: rule for rule in RULES}
TESTS = yaml.safe_load((FOLDER / "alerts.test.yaml").read_text())["tests"]
DASHBOARD = json.loads((FOLDER / "dashboard.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = {f"{panel['title']}: {target['expr']}": target["expr"] for panel in PANELS for target in panel["targets"]}
QUERIES |= {name: rule["expr"] for name, rule in ALERTS.items()}

ADDED = {"instance", "le"}
"""Labels that Prometheus adds, and the label of buckets."""
FOREIGN = {"process_resident_memory_bytes", "up"}
THRESHOLDS = {
    "TradewindStoreMemoryHigh": 0.85,
    "TradewindStoreConnectionsHigh": 0.9,
    "TradewindQueueLong": 1000,
    "TradewindStoreSlow": 0.1,
    "TradewindAnswersSlow": 0.1,
}
"""The alerts and thresholds that the specification names."""


def declared() -> dict[str, set[str]]:
    """Return the labels of each series that the code defines, by name."""
    series: dict[str, set[str]] = {}
    for metric in {*REGISTRY._names_to_collectors.values()}:
        name, labels = getattr(metric, "_name", ""), set(getattr(metric, "_labelnames", ()))
        if not name.startswith("tradewind_"):
            continue
        if isinstance(metric, Histogram):
            series |= {f"{name}_bucket": labels | {"le"}, f"{name}_sum": labels, f"{name}_count": labels}
        else:
            series[f"{name}_total" if isinstance(metric, Counter) else name] = labels
    return series


SERIES = declared()


def parts(expression: Any) -> Iterator[Any]:
    """Yield an expression and all its subexpressions."""
    yield expression
    for name in ("expr", "lhs", "rhs", "args", "vs", "vector_selector", "param"):
        inner = getattr(expression, name, None)
        for each in inner if isinstance(inner, list) else [inner]:
            if each is not None and not isinstance(each, str | int | float):
                yield from parts(each)


def selectors_in(query: str) -> list[tuple[str, set[str]]]:
    """Return the series that a query reads, with the labels it selects by; raises ValueError for an invalid query."""
    parsed = promql_parser.parse(query.replace("$__rate_interval", "5m"))
    return [
        (str(part.name), {matcher.name for matcher in part.matchers.matchers})
        for part in parts(parsed)
        if isinstance(part, promql_parser.VectorSelector)
    ]


@pytest.mark.parametrize("name", QUERIES)
def test_queries_read_existing_series_and_labels(name: str) -> None:
    query = QUERIES[name]
    read = [(series, labels) for series, labels in selectors_in(query) if series not in FOREIGN]
    assert read or any(foreign in query for foreign in FOREIGN)
    assert [series for series, _ in read if series not in SERIES] == []
    known = {label for series, _ in read for label in SERIES[series]} | ADDED
    grouped = {label.strip() for group in re.findall(r"\bby \(([^)]*)\)", query) for label in group.split(",")}
    assert grouped <= known
    for series, labels in read:
        assert labels <= SERIES[series] | ADDED


def test_every_metric_is_on_the_dashboard_and_documented() -> None:
    shown = {series for query in QUERIES.values() for series, _ in selectors_in(query)}
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in SERIES if not name.endswith("_max_bytes")}
    bases |= {name for name in SERIES if name.endswith("_max_bytes")}
    assert {base for base in bases if not any(name.startswith(base) for name in shown)} == set()
    assert {base for base in bases if f"`{base}`" not in PAGE} == set()
    named = set(re.findall(r"`(tradewind_\w+)`", PAGE))
    assert {name for name in named if name not in bases} == set()


def test_series_that_queries_select_by_label_are_there_from_the_start() -> None:
    """A rate that is divided by one without series has no value, so an alert on it cannot fire."""
    modules = ("scheduler", "node_task_manager")
    program = "\n".join(
        [
            "from prometheus_client import generate_latest",
            *(f"import tradewind.{module}.metrics" for module in modules),
            "from tradewind.server.metrics import REGISTRY",
            "print(generate_latest(REGISTRY).decode())",
        ]
    )
    fresh = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    wanted = {
        f'{series}{{{label}="{value}"}}'
        for query in QUERIES.values()
        for series, label, values in re.findall(r'(tradewind_\w+_total)\{(\w+)=~?"([^"]+)"\}', query)
        for value in values.split("|")
    }
    assert 'tradewind_cache_events_total{event="hits"}' in wanted
    assert {series for series in wanted if f"{series} 0.0" not in fresh.splitlines()} == set()


def test_alert_thresholds_match_the_specification() -> None:
    for alert, threshold in THRESHOLDS.items():
        (found,) = re.findall(r"> ([\d.]+)$", ALERTS[alert]["expr"])
        assert float(found) == threshold, alert
        assert ALERTS[alert]["keep_firing_for"], "it would flap"


def test_every_alert_is_described_and_tested() -> None:
    assert len(ALERTS) == len(RULES)
    for rule in RULES:
        assert {"summary", "description"} <= rule["annotations"].keys(), rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert THRESHOLDS.keys() - {"TradewindAnswersSlow"} <= {
        check["alertname"] for test in TESTS for check in test["alert_rule_test"] if check["exp_alerts"]
    }


def test_panels_have_unique_names_and_do_not_overlap() -> None:
    assert len({panel["title"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


@pytest.mark.skipif(
    shutil.which("promtool") is None and os.environ.get("TRADEWIND_REQUIRE_PROMTOOL") != "1",
    reason="promtool is not installed (a failure with TRADEWIND_REQUIRE_PROMTOOL=1); the queries are parsed above",
)
@pytest.mark.parametrize("arguments", [("check", "rules", "alerts.yaml"), ("test", "rules", "alerts.test.yaml")])
def test_promtool_accepts_the_alerts(arguments: tuple[str, ...]) -> None:
    ran = subprocess.run(["promtool", *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stdout + ran.stderr
