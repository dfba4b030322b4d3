"""The network policies of k8s/ allow the calls that the code makes, and no others."""

from typing import Any

import pytest

from tests.house.manifests import (
    NAME,
    OVERLAYS,
    SERVICES,
    Manifest,
    container,
    environment,
    of_kind,
    selects,
    services,
    workloads,
)
from tradewind.client import Addresses

Edge = tuple[str, str, int]
"""Caller, callee, and the callee's port."""

CLIENT = {"tradewind-client": "true"}


def pods(folder: str) -> dict[str, dict[str, str]]:
    """Return the labels of every pod, and those of a client."""
    return {name: each["metadata"]["labels"] for name, each in workloads(folder).items()} | {"client": CLIENT}


def peers(folder: str, rule: Manifest, side: str) -> set[str]:
    """Return the pods of this namespace that a rule selects."""
    assert rule.get(side), "a rule that names nobody is open to everybody"
    found: set[str] = set()
    for peer in rule[side]:
        assert "ipBlock" not in peer
        if "namespaceSelector" not in peer:
            assert peer["podSelector"], "an empty selector takes every pod"
            found |= {name for name, labels in pods(folder).items() if selects(peer["podSelector"], labels)}
    return found


def allowed_edges(folder: str, direction: str) -> set[Edge]:
    """Return the edges within the namespace that the policies allow in one direction."""
    found: set[Edge] = set()
    for policy in of_kind(folder, "NetworkPolicy").values():
        side = "to" if direction == "egress" else "from"
        for rule in policy["spec"].get(direction, []):
            here = {name for name, labels in pods(folder).items() if selects(policy["spec"]["podSelector"], labels)}
            for other in peers(folder, rule, side):
                for port in rule["ports"]:
                    for name in here:
                        found.add((name, other, port["port"]) if direction == "egress" else (other, name, port["port"]))
    return found


def port_of(folder: str, name: str) -> int:
    port = of_kind(folder, "Service")[name]["spec"]["ports"][0]["port"]
    assert isinstance(port, int)
    return port


def required_edges(folder: str) -> set[Edge]:
    """Return the calls of pods, from the addresses they are given, and those of clients, from what a client knows."""
    found: set[Edge] = set()
    for name, template in workloads(folder).items():
        variables = environment(folder, template)
        for variable, value in variables.items():
            if variable.startswith("TRADEWIND_") and variable.endswith("_ADDRESS"):
                peer, _, port = value.partition(":")
                found.add((name, peer, int(port)))
        if "TRADEWIND_STORE_URL" in variables:
            found.add((name, "redis", port_of(folder, "redis")))
        if name in SERVICES and "TRADEWIND_OTLP_ENDPOINT" in variables:
            peer, _, port = variables["TRADEWIND_OTLP_ENDPOINT"].removeprefix("http://").partition(":")
            found.add((name, peer, int(port)))
    for field in Addresses.__dataclass_fields__:
        peer = field.replace("_", "-")
        if peer in services(folder):
            found.add(("client", peer, port_of(folder, peer)))
    return found


@pytest.mark.parametrize("folder", OVERLAYS)
def test_network_policies_allow_exactly_the_calls_of_the_code(folder: str) -> None:
    calls = required_edges(folder)
    assert allowed_edges(folder, "egress") == calls
    ports = {(name, other, _ingress_port(folder, other, port)) for name, other, port in calls}
    within = {edge for edge in allowed_edges(folder, "ingress") if edge[2] == port_of(folder, edge[1])}
    assert within == ports


def _ingress_port(folder: str, name: str, port: int) -> int:
    """Return the port of a policy; policies name the ports of pods, which are also those of the services here."""
    assert port in [each["containerPort"] for each in container(workloads(folder)[name])["ports"]]
    return port


@pytest.mark.parametrize("folder", OVERLAYS)
def test_calls_between_services_go_one_way(folder: str) -> None:
    """Scheduler to trigger, node task manager and registry; node task manager to registry; all services to access."""
    guarded = {(name, "access") for name in SERVICES if name != "access"} if "access" in services(folder) else set()
    assert {(a, b) for a, b, _ in allowed_edges(folder, "egress") if a in SERVICES and b in SERVICES} == {
        ("scheduler", "trigger"),
        ("scheduler", "node-task-manager"),
        ("scheduler", "registry"),
        ("node-task-manager", "registry"),
        *guarded,
    }


@pytest.mark.parametrize("folder", OVERLAYS)
def test_traffic_is_denied_by_default(folder: str) -> None:
    policies = of_kind(folder, "NetworkPolicy")
    default: dict[str, Any] = policies["default-deny"]["spec"]
    assert default == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    outside: dict[str, set[str]] = {}
    for name, policy in policies.items():
        for direction, side in (("ingress", "from"), ("egress", "to")):
            rules = policy["spec"].get(direction, [])
            assert not rules or direction.capitalize() in policy["spec"]["policyTypes"], name
            for rule in rules:
                assert all("port" in port for port in rule["ports"]), name
                if any("namespaceSelector" in peer for peer in rule[side]):
                    outside.setdefault(direction, set()).add(name)
    assert outside["egress"] == {"dns"}
    assert outside.get("ingress", set()) <= {"from-gateway", "node-task-manager-from-keda", "metrics"}


def test_pod_without_a_known_label_reaches_nothing_but_dns() -> None:
    """The policy for all pods allows only DNS."""
    for folder in OVERLAYS:
        for name, policy in of_kind(folder, "NetworkPolicy").items():
            if selects(policy["spec"]["podSelector"], {NAME: "stranger"}):
                assert name in ("default-deny", "dns")
