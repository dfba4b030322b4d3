"""The component of Kubernetes that turns metrics on agrees with the settings of the services."""

import os
from pathlib import Path

import pytest

from tests.house.manifests import SERVICES, build, container, environment, of_kind, selects, workloads
from tests.house.project import ROOT
from tradewind.server.redis.watch import METRICS
from tradewind.server.settings import load_settings


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All services with the component."""
    home: Path = tmp_path_factory.mktemp("monitored")
    base, component = (os.path.relpath(ROOT / "k8s" / part, home) for part in ("base", "components/monitoring"))
    (home / "kustomization.yaml").write_text(f"resources: [{base}]\ncomponents: [{component}]\n", encoding="utf-8")
    return str(home)


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_serves_metrics_where_they_are_looked_for(
    folder: str, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = workloads(folder)[service]
    for name, value in environment(folder, pod).items():
        monkeypatch.setenv(name, value)
    settings = load_settings(SERVICES[service][1])
    assert (settings.metrics_host, settings.metrics_store_user) == ("0.0.0.0", METRICS.name)
    assert "'store-passwords'" in os.environ["TRADEWIND_METRICS_STORE_PASSWORD"]
    assert {"name": "metrics", "containerPort": settings.metrics_port} in container(pod)["ports"]
    annotations = pod["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(settings.metrics_port)
    policy = of_kind(folder, "NetworkPolicy")["metrics"]["spec"]
    assert selects(policy["podSelector"], pod["metadata"]["labels"])
    assert [port["port"] for rule in policy["ingress"] for port in rule["ports"]] == [settings.metrics_port]


def test_alerts_and_dashboard_are_config_maps(folder: str) -> None:
    files = {name for each in build(folder) if each["kind"] == "ConfigMap" for name in each["data"]}
    assert {"alerts.yaml", "dashboard.json"} <= files
