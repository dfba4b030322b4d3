"""The manifests in k8s/ are valid by the schemas of Kubernetes and agree with the code."""

import importlib.util
import json
import math
import re
from typing import Any

import kubernetes_validate
import pytest
from typer.main import get_command

from tests.house.manifests import (
    BUILDS,
    NAME,
    OVERLAYS,
    RUNNING,
    SERVICES,
    build,
    container,
    environment,
    of_kind,
    selectors,
    selects,
    services,
    settings_of,
    workloads,
)
from tests.house.project import ROOT
from tools.store_secrets import acl_file, secret_manifests, user_names
from tradewind.cli.app import app
from tradewind.client import Addresses
from tradewind.node_task_manager.rpc.external_scaler import read_metadata
from tradewind.server import bootstrap
from tradewind.server.settings import settings_table
from tradewind.worker import load_nodes

VERSIONS = ("1.31", "1.37")
CUSTOM = {
    "ScaledObject",
    "GRPCRoute",
    "PrometheusRule",
    "PodMonitor",
    "ServiceMonitor",
    "Certificate",
    "Issuer",
    "TriggerAuthentication",
}
"""Custom kinds, whose schemas are not available here."""

SECRETS = {
    manifest["metadata"]["name"]: manifest["stringData"]
    for manifest in secret_manifests(dict.fromkeys(user_names(), "x"), "x")
}
LATER = {"worker-token": {"token"}, "service-token": {"token", "accepted"}}
"""Secrets that a person adds once access runs; docs/kubernetes.md and docs/access.md say how."""


@pytest.mark.parametrize("version", VERSIONS)
def test_every_manifest_has_the_schema_of_its_kind(version: str) -> None:
    manifests = {json.dumps(each, sort_keys=True): each for folder in BUILDS for each in build(folder)}
    for manifest in manifests.values():
        if manifest["kind"] not in CUSTOM:
            kubernetes_validate.validate(manifest, version, strict=True)


def test_unknown_field_is_refused() -> None:
    """The schemas are strict, so the previous test can fail."""
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "x"}, "spec": {"clusterIp": "None"}}
    for version in VERSIONS:
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(service, version, strict=True)


@pytest.mark.parametrize("folder", BUILDS)
def test_pods_are_restricted(folder: str) -> None:
    """Pods meet Pod Security's level `restricted` and more: a read-only root, no token, resource limits."""
    for name, template in workloads(folder).items():
        pod = template["spec"]
        assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False), name
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["runAsUser"] > 0, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert not {"hostNetwork", "hostPID", "hostIPC", "initContainers"} & pod.keys(), name
        allowed = {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}
        assert all(set(volume) - {"name"} <= allowed for volume in pod.get("volumes", [])), name
        only = container(template)
        assert only["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }, name
        assert {"cpu", "memory"} <= only["resources"]["requests"].keys(), name
        assert "memory" in only["resources"]["limits"], name
        assert not any("hostPort" in port for port in only.get("ports", [])), name


@pytest.mark.parametrize("folder", OVERLAYS)
def test_namespace_enforces_restricted_pods(folder: str) -> None:
    (namespace,) = of_kind(folder, "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    everywhere = {each["metadata"].get("namespace") for each in build(folder) if each["kind"] != "Namespace"}
    assert everywhere == {namespace["metadata"]["name"]}


@pytest.mark.parametrize("folder", BUILDS)
def test_images_have_a_version_and_no_registry_host(folder: str) -> None:
    for template in workloads(folder).values():
        image = container(template)["image"]
        repository, _, tag = image.partition(":")
        assert tag not in ("", "latest"), image
        assert not re.search(r"[.:]", repository.split("/")[0]) or "/" not in repository, image


@pytest.mark.parametrize("folder", OVERLAYS)
def test_every_selector_matches_a_pod(folder: str) -> None:
    labels = [template["metadata"]["labels"] for template in workloads(folder).values()]
    outside = {"tradewind-client", "k8s-app", "app"}
    for manifest in build(folder):
        for selector in selectors(manifest):
            named = {*selector.get("matchLabels", {}), *(each["key"] for each in selector.get("matchExpressions", []))}
            if not named or named & outside:
                continue
            assert any(selects(selector, each) for each in labels), (
                manifest["kind"],
                manifest["metadata"]["name"],
                selector,
            )


@pytest.mark.parametrize("folder", OVERLAYS)
def test_service_ports_are_container_ports(folder: str) -> None:
    pods = workloads(folder)
    for name, service in of_kind(folder, "Service").items():
        found = [
            each
            for each in pods.values()
            if selects({"matchLabels": service["spec"]["selector"]}, each["metadata"]["labels"])
        ]
        assert len(found) == 1, name
        ports = {port["name"]: port["containerPort"] for port in container(found[0])["ports"]}
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"], name


@pytest.mark.parametrize(("folder", "name"), RUNNING)
def test_manifest_of_a_service_agrees_with_its_settings(
    folder: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each variable is a setting with a valid value; ports, addresses, probes and drain match the settings."""
    built, settings, user = SERVICES[name]
    template = workloads(folder)[name]
    only, variables = container(template), environment(folder, template)
    known = {variable for variable, _, _ in settings_table(settings)}
    assert {each for each in variables if each.startswith("TRADEWIND_")} <= known
    values = settings_of(settings, folder, template, monkeypatch)

    assert only["command"][:2] == ["python", "-m"]
    assert importlib.util.find_spec(f"{only['command'][2]}.__main__")
    assert built.__module__.startswith(only["command"][2])
    assert values.host == "0.0.0.0"
    assert only["ports"][0] == {"name": "grpc", "containerPort": values.port}
    service = of_kind(folder, "Service")[name]["spec"]
    assert (service["clusterIP"], service["ports"][0]["port"]) == ("None", values.port)
    assert variables["TRADEWIND_STORE_USER"] == user.name
    assert values.key_prefix == "trading_flow"
    ports = {peer: each["spec"]["ports"][0]["port"] for peer, each in of_kind(folder, "Service").items()}
    for field in ("registry_address", "node_task_manager_address", "trigger_address", "access_address"):
        if getattr(values, field, None):
            peer, _, port = getattr(values, field).partition(":")
            assert (peer.replace("-", "_") + "_address", ports[peer]) == (field, int(port))
    assert values.store_url == f"redis://redis:{ports['redis']}"
    guarded = "access" in services(folder)
    assert bool(values.access_address) == (guarded and name != "access")
    assert ("TRADEWIND_SERVICE_TOKEN" in variables) == (guarded and not values.tls_roles)

    health = values.health_port or values.port
    assert health in [each["containerPort"] for each in only["ports"]]
    for probe in ("startupProbe", "livenessProbe"):
        assert only[probe]["grpc"] == {"port": health, "service": "liveness"}
    assert only["readinessProbe"]["grpc"] == {"port": health, "service": "readiness"}
    pause = only["lifecycle"]["preStop"]["sleep"]["seconds"]
    grace = template["spec"]["terminationGracePeriodSeconds"]
    assert pause + values.drain_seconds + 2 * bootstrap.STOP_S < grace


@pytest.mark.parametrize("folder", OVERLAYS)
def test_services_survive_loss_or_drain_of_a_node(folder: str) -> None:
    budgets = of_kind(folder, "PodDisruptionBudget")
    for name in services(folder):
        template = workloads(folder)[name]
        assert [each["topologyKey"] for each in template["spec"]["topologySpreadConstraints"]] == [
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
        ]
        assert budgets[name]["spec"]["maxUnavailable"] == 1
    for name in budgets.keys() - {"redis"}:
        assert budgets[name]["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow", "broken pods hold up no drain"
    for scaler in of_kind(folder, "HorizontalPodAutoscaler").values():
        assert scaler["spec"]["minReplicas"] >= 2
    scaled = of_kind(folder, "HorizontalPodAutoscaler", "ScaledObject")
    if scaled:
        assert set(scaled) >= set(services(folder)), "what is not scaled is the narrowest place"
    for name, deployment in of_kind(folder, "Deployment").items():
        assert ("replicas" in deployment["spec"]) == (name not in scaled), "what a scaler sets is set nowhere else"


def test_restore_instructions_scale_every_service_down_and_up() -> None:
    """As docs/backup.md says; an autoscaler, which sets the replicas otherwise, leaves a deployment with 0 alone."""
    page = (ROOT / "docs/backup.md").read_text(encoding="utf-8")
    scaled = re.findall(r"scale deployment (.+) --replicas (\d+)", page)
    assert [(sorted(names.split()), int(replicas)) for names, replicas in scaled] == [
        (sorted(services("k8s/overlays/prod")), 0),
        (sorted(services("k8s/overlays/prod")), 2),
    ]


@pytest.mark.parametrize("folder", OVERLAYS)
def test_store_has_memory_left_for_a_rewrite(folder: str) -> None:
    """`maxmemory` is at most two thirds of the container's memory limit."""
    limit = container(workloads(folder)["redis"])["resources"]["limits"]["memory"]
    assert _max_memory(folder) * 3 <= _bytes(limit) * 2


@pytest.mark.parametrize("folder", [folder for folder in OVERLAYS if not folder.endswith("/dev")])
def test_backups_that_are_kept_have_room_for_a_full_store(folder: str) -> None:
    pod = of_kind(folder, "CronJob")["redis-backup"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    command = pod["containers"][0]["command"]
    kept = int(command[command.index("--keep") + 1])
    claim = of_kind(folder, "PersistentVolumeClaim")["redis-backups"]
    assert (kept + 1) * _max_memory(folder) <= _bytes(claim["spec"]["resources"]["requests"]["storage"])


@pytest.mark.parametrize("folder", OVERLAYS)
def test_store_writes_to_its_volume_claim(folder: str) -> None:
    (claim,) = of_kind(folder, "StatefulSet")["redis"]["spec"]["volumeClaimTemplates"]
    mounts = {each["name"]: each["mountPath"] for each in container(workloads(folder)["redis"])["volumeMounts"]}
    conf = of_kind(folder, "ConfigMap")[_redis(folder)]["data"]["redis.conf"]
    assert re.findall(r"^dir (.+)$", conf, re.M) == [mounts[claim["metadata"]["name"]]]


def _max_memory(folder: str) -> int:
    """Return the `maxmemory` of the store, in bytes."""
    command = container(workloads(folder)["redis"])["command"]
    if "--maxmemory" in command:
        return _bytes(command[command.index("--maxmemory") + 1])
    (text,) = re.findall(r"^maxmemory (\w+)$", of_kind(folder, "ConfigMap")[_redis(folder)]["data"]["redis.conf"], re.M)
    return _bytes(text)


def _bytes(text: str) -> int:
    return int(text[:-2]) * {"gb": 2**30, "mb": 2**20, "Gi": 2**30, "Mi": 2**20}[text[-2:]]


def _redis(folder: str) -> str:
    (name,) = [
        volume["configMap"]["name"] for volume in workloads(folder)["redis"]["spec"]["volumes"] if "configMap" in volume
    ]
    assert isinstance(name, str)
    return name


@pytest.mark.parametrize("folder", BUILDS)
def test_every_secret_in_use_is_issued(folder: str) -> None:
    """Secrets that pods use come from tools/store_secrets.py, a Certificate or a person."""
    issued = {each["spec"]["secretName"] for each in of_kind(folder, "Certificate").values()}
    for template in workloads(folder).values():
        for each in container(template).get("env", []):
            reference = each.get("valueFrom", {}).get("secretKeyRef")
            if reference:
                assert reference["key"] in {**SECRETS, **LATER}[reference["name"]]
        for volume in template["spec"].get("volumes", []):
            if "secret" in volume:
                assert volume["secret"]["secretName"] in {*SECRETS, *issued}


def test_prod_contains_no_secrets() -> None:
    assert of_kind("k8s/overlays/prod", "Secret") == {}


def test_store_users_of_dev_match_the_code() -> None:
    secrets = of_kind("k8s/overlays/dev", "Secret")
    names = secrets["store-passwords"]["data"]
    assert names.keys() >= {"admin", "backup", *(user.name for _, _, user in SERVICES.values())}
    expected = acl_file({name: f"dev-{name}" for name in names})
    assert (ROOT / "k8s/overlays/dev/users.acl").read_text(encoding="utf-8") == expected


@pytest.mark.parametrize("folder", BUILDS)
def test_container_commands_exist(folder: str) -> None:
    """Each `tradewind` command that a container runs exists and has these options."""
    ran = 0
    for template in workloads(folder).values():
        command = container(template).get("command", [])
        if command[:1] == ["tradewind"]:
            # Parse the command line without running its last step.
            found: Any = get_command(app)
            words = command[1:]
            while hasattr(found, "commands"):
                word = words[0] if words[0] in found.commands else "run"
                words = words[1:] if words[0] in found.commands else words
                found = found.commands[word]
            found.make_context("tradewind", list(words), resilient_parsing=False)
            ran += 1
    assert ran


@pytest.mark.parametrize("folder", OVERLAYS)
def test_workers_are_given_the_addresses_of_their_servers(folder: str) -> None:
    template = workloads(folder)["worker"]
    ports = {name: each["spec"]["ports"][0]["port"] for name, each in of_kind(folder, "Service").items()}
    found = Addresses.find(environment=environment(folder, template))
    for name in ("scheduler", "registry", "node-task-manager"):
        assert getattr(found, name.replace("-", "_")) == f"{name}:{ports[name]}"
    token_or_certificate = {"TRADEWIND_TOKEN", "TRADEWIND_TLS_CERT"} & set(environment(folder, template))
    assert len(token_or_certificate) == int("access" in services(folder))
    command = container(template)["command"]
    grace = float(command[command.index("--grace") + 1])
    assert grace + 10 < template["spec"]["terminationGracePeriodSeconds"]


def test_workers_are_scaled_by_their_node_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """KEDA asks about the node types of the pool, and the node task manager accepts the metadata."""
    (scaled,) = of_kind("k8s/overlays/prod", "ScaledObject").values()
    (trigger,) = scaled["spec"]["triggers"]
    assert trigger["type"] == "external-push"
    monkeypatch.syspath_prepend(ROOT / "k8s/components/workers")
    pool, target = read_metadata(trigger["metadata"])
    assert set(pool.node_types) == {each.type for each in load_nodes("nodes")}
    assert math.isfinite(target)
    name, _, port = trigger["metadata"]["scalerAddress"].partition(":")
    assert (name, int(port)) == ("node-task-manager.tradewind.svc", 7703)
    assert scaled["spec"]["scaleTargetRef"]["name"] in of_kind("k8s/overlays/prod", "Deployment")


def test_route_sends_each_service_to_its_backend() -> None:
    (route,) = of_kind("k8s/overlays/prod", "GRPCRoute").values()
    backends = of_kind("k8s/overlays/prod", "Service")
    routed: dict[str, str] = {}
    for rule in route["spec"]["rules"]:
        (backend,) = rule["backendRefs"]
        assert backends[backend["name"]]["spec"]["ports"][0]["port"] == backend["port"]
        for match in rule["matches"]:
            routed[match["method"]["service"]] = backend["name"]
    for name, (built, _, _) in SERVICES.items():
        for served in built.names:
            if served.startswith("tradewind."):
                assert routed[served] == name


def test_pods_are_labelled_with_their_names() -> None:
    for folder in OVERLAYS:
        for name, workload in of_kind(folder, "Deployment", "StatefulSet").items():
            labels = workload["spec"]["template"]["metadata"]["labels"]
            assert (labels[NAME], labels["app.kubernetes.io/part-of"]) == (name, "tradewind")
