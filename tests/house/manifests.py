"""The manifests of k8s/: each overlay as kustomize builds it, and its contents."""

import subprocess
import sysconfig
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.house.project import ROOT
from tradewind.access.app import Access
from tradewind.access.settings import AccessSettings
from tradewind.access.stores.keys import ACL as ACCESS_USER
from tradewind.node_task_manager.app import NodeTaskManager
from tradewind.node_task_manager.settings import NodeTaskManagerSettings
from tradewind.node_task_manager.stores.keys import ACL as NODE_TASK_MANAGER_USER
from tradewind.registry.app import Registry
from tradewind.registry.settings import RegistrySettings
from tradewind.registry.stores.keys import ACL as REGISTRY_USER
from tradewind.scheduler.app import Scheduler
from tradewind.scheduler.settings import SchedulerSettings
from tradewind.scheduler.stores.keys import ACL as SCHEDULER_USER
from tradewind.server.settings import AnySettings, load_settings
from tradewind.trigger.app import TriggerService
from tradewind.trigger.settings import TriggerSettings
from tradewind.trigger.stores.keys import ACL as TRIGGER_USER

Manifest = dict[str, Any]

NAME = "app.kubernetes.io/name"
SERVICES: dict[str, Any] = {
    "scheduler": (Scheduler, SchedulerSettings, SCHEDULER_USER),
    "registry": (Registry, RegistrySettings, REGISTRY_USER),
    "node-task-manager": (NodeTaskManager, NodeTaskManagerSettings, NODE_TASK_MANAGER_USER),
    "trigger": (TriggerService, TriggerSettings, TRIGGER_USER),
    "access": (Access, AccessSettings, ACCESS_USER),
}
"""The services by their names in the cluster: class, settings, and user of the store."""

OVERLAYS = sorted(
    path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "k8s/overlays").glob("*/kustomization.yaml")
)
BUILDS = [
    *OVERLAYS,
    *sorted(path.parent.relative_to(ROOT).as_posix() for path in (ROOT / "k8s/jobs").glob("*/kustomization.yaml")),
]

GUARDED = {folder for folder in OVERLAYS if folder != "k8s/overlays/dev"}
"""The overlays in which calls need a token, so access runs."""


def services(folder: str) -> list[str]:
    """Return the services that run in an overlay."""
    return [name for name in SERVICES if name != "access" or folder in GUARDED]


RUNNING = [(folder, name) for folder in OVERLAYS for name in services(folder)]
"""Return each overlay with each of its services."""


@cache
def build(folder: str) -> list[Manifest]:
    """Return the output of `kubectl kustomize` for a folder; read it, do not change it."""
    kubectl = Path(sysconfig.get_path("scripts")) / "kubectl"
    ran = subprocess.run([kubectl, "kustomize", str(ROOT / folder)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "deprecated" not in ran.stderr, ran.stderr
    return [each for each in yaml.safe_load_all(ran.stdout) if each]


def of_kind(folder: str, *kinds: str) -> dict[str, Manifest]:
    """Return the manifests of these kinds by name."""
    return {each["metadata"]["name"]: each for each in build(folder) if each["kind"] in kinds}


def workloads(folder: str) -> dict[str, Manifest]:
    """Return the pod templates by the label app.kubernetes.io/name."""
    found: dict[str, Manifest] = {}
    for each in of_kind(folder, "Deployment", "StatefulSet", "Job").values():
        found[each["spec"]["template"]["metadata"]["labels"][NAME]] = each["spec"]["template"]
    for each in of_kind(folder, "CronJob").values():
        template = each["spec"]["jobTemplate"]["spec"]["template"]
        found[template["metadata"]["labels"][NAME]] = template
    return found


def container(template: Manifest) -> Manifest:
    """Return the only container of a pod."""
    (only,) = template["spec"]["containers"]
    assert isinstance(only, dict)
    return only


def environment(folder: str, template: Manifest) -> dict[str, str]:
    """Return the variables of a pod's container; those from Secrets or from the pod itself hold `<their source>`."""
    config = of_kind(folder, "ConfigMap")
    found: dict[str, str] = {}
    for source in container(template).get("envFrom", []):
        found |= config[source["configMapRef"]["name"]]["data"]
    for each in container(template).get("env", []):
        found[each["name"]] = each["value"] if "value" in each else f"<{each['valueFrom']}>"
    return found


def settings_of(
    settings: type[AnySettings], folder: str, template: Manifest, monkeypatch: pytest.MonkeyPatch
) -> AnySettings:
    """Return the settings that a program reads in a pod; the variables stay set until the end of the test."""
    for name, value in environment(folder, template).items():
        monkeypatch.setenv(name, value)
    return load_settings(settings)


def selects(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Tell whether a Kubernetes label selector matches these labels."""
    for key, value in selector.get("matchLabels", {}).items():
        if labels.get(key) != value:
            return False
    for each in selector.get("matchExpressions", []):
        assert each["operator"] == "In", "no other operator is needed here"
        if labels.get(each["key"]) not in each["values"]:
            return False
    return True


def selectors(manifest: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every label selector for pods below a manifest."""
    if isinstance(manifest, dict):
        for key, value in manifest.items():
            if key in ("podSelector", "labelSelector") or (key == "selector" and "matchLabels" in value):
                yield value
            else:
                yield from selectors(value)
    elif isinstance(manifest, list):
        for each in manifest:
            yield from selectors(each)
