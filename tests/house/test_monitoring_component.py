"""The Kubernetes component that turns on metrics agrees with the services' settings."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.house.manifests import SERVICES, Manifest, build, container, of_kind, selects, settings_of, workloads
from tests.house.project import ROOT
from tradewind.cli.app import app
from tradewind.server.redis.watch import METRICS
from tradewind.server.settings import TelemetrySettings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All services and a pool of workers with the component."""
    home: Path = tmp_path_factory.mktemp("monitored")
    base, *components = (
        os.path.relpath(ROOT / "k8s" / part, home)
        for part in ("base", "components/workers", "components/access", "components/monitoring")
    )
    (home / "kustomization.yaml").write_text(
        f"namespace: tradewind\nresources: [{base}]\ncomponents: [{', '.join(components)}]\n", encoding="utf-8"
    )
    return str(home)


@pytest.mark.parametrize("service", SERVICES)
def test_services_serve_metrics_where_prometheus_scrapes(
    folder: str, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = workloads(folder)[service]
    settings = settings_of(SERVICES[service][1], folder, pod, monkeypatch)
    assert (settings.metrics_host, settings.metrics_store_user) == ("0.0.0.0", METRICS.name)
    assert "'store-passwords'" in os.environ["TRADEWIND_METRICS_STORE_PASSWORD"]
    assert_scraped(folder, pod, settings)


def test_workers_serve_metrics_where_prometheus_scrapes(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pod = workloads(folder)["worker"]
    settings = settings_of(TelemetrySettings, folder, pod, monkeypatch)
    assert settings.metrics_host == "0.0.0.0"
    assert_scraped(folder, pod, settings)


def assert_scraped(folder: str, pod: Manifest, settings: TelemetrySettings) -> None:
    """Assert that the metrics port is a port of the pod, announced, and open to Prometheus's namespace."""
    assert {"name": "metrics", "containerPort": settings.metrics_port} in container(pod)["ports"]
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(settings.metrics_port)
    policy = of_kind(folder, "NetworkPolicy")["metrics"]["spec"]
    assert selects(policy["podSelector"], pod["metadata"]["labels"])
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [settings.metrics_port]


def test_alerts_and_dashboard_are_in_config_maps(folder: str) -> None:
    files = {name for each in build(folder) if each["kind"] == "ConfigMap" for name in each["data"]}
    assert {"alerts.yaml", "dashboard.json"} <= files


def test_commands_in_alerts_are_valid() -> None:
    alerts = (ROOT / "k8s" / "components" / "monitoring" / "alerts.yaml").read_text(encoding="utf-8")
    commands = re.findall(r"`tradewind ([^`]+)`", alerts)
    assert commands
    for command in commands:
        found: Any = get_command(app)
        words = command.split()
        while hasattr(found, "commands"):
            found = found.commands[words.pop(0)]
        # Parse it without running it; a missing argument is an error.
        found.make_context("tradewind", words)
