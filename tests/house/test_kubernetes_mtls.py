"""Where k8s/ turns on mTLS, every pod has a certificate with the names under which it is called."""

from pathlib import PurePosixPath

import pytest

from tests.house.manifests import SERVICES, Manifest, container, environment, of_kind, settings_of, workloads
from tradewind.server.access.gate_settings import certificates_in
from tradewind.tls import TlsFiles

FOLDER = "k8s/overlays/prod-mtls"
KEYS = ("ca.crt", "tls.crt", "tls.key")
"""The contents of a certificate's Secret."""


def certificates() -> dict[str, Manifest]:
    """Return the spec of every Certificate, by the Secret that holds it."""
    return {each["spec"]["secretName"]: each["spec"] for each in of_kind(FOLDER, "Certificate").values()}


def secret_of(template: Manifest) -> tuple[str, str]:
    """Return the Secret of a pod's certificate, and its mount path."""
    (name, secret), *more = [
        (volume["name"], volume["secret"]["secretName"])
        for volume in template["spec"]["volumes"]
        if volume.get("secret", {}).get("secretName") in certificates()
    ]
    assert not more
    (mount,) = [each for each in container(template)["volumeMounts"] if each["name"] == name]
    assert mount["readOnly"]
    assert "subPath" not in mount, "a file below subPath is never replaced, so that the certificate would expire"
    return secret, mount["mountPath"]


@pytest.mark.parametrize("name", [*SERVICES, "worker"])
def test_each_pod_reads_its_own_certificate(name: str) -> None:
    template = workloads(FOLDER)[name]
    secret, folder = secret_of(template)
    assert secret == f"tls-{name}"
    found = TlsFiles.find(environment=environment(FOLDER, template))
    assert found is not None
    assert [PurePosixPath(str(path)) for path in (found.ca, found.cert, found.key)] == [
        PurePosixPath(folder) / key for key in KEYS
    ]
    assert {"server auth", "client auth"} <= set(certificates()[secret]["usages"])


@pytest.mark.parametrize("name", SERVICES)
def test_servers_require_client_certificates(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    template = workloads(FOLDER)[name]
    settings = settings_of(SERVICES[name][1], FOLDER, template, monkeypatch)
    assert settings.tls_require_client_cert
    assert {"name": "health", "containerPort": settings.health_port} in container(template)["ports"]
    assert settings.health_port not in (0, settings.port, settings.metrics_port)
    assert of_kind(FOLDER, "Service")[name]["spec"]["ports"][0]["appProtocol"] == "https"


def test_certificates_contain_the_called_names() -> None:
    called = {
        value.partition(":")[0]
        for template in workloads(FOLDER).values()
        for variable, value in environment(FOLDER, template).items()
        if variable.startswith("TRADEWIND_") and variable.endswith("_ADDRESS")
    }
    for scaled in of_kind(FOLDER, "ScaledObject").values():
        called |= {trigger["metadata"]["scalerAddress"].partition(":")[0] for trigger in scaled["spec"]["triggers"]}
    assert called == {*(name for name in SERVICES), "node-task-manager.tradewind.svc"}
    for host in called:
        assert host in certificates()[f"tls-{host.partition('.')[0]}"]["dnsNames"]


@pytest.mark.parametrize("name", SERVICES)
def test_certificates_give_callers_their_roles(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly the servers that call a service have the role `service` there; no pod has a token."""
    callers = {
        caller
        for caller, template in workloads(FOLDER).items()
        for variable, value in environment(FOLDER, template).items()
        if variable.endswith("_ADDRESS") and value.partition(":")[0] == name
    }
    template = workloads(FOLDER)[name]
    settings = settings_of(SERVICES[name][1], FOLDER, template, monkeypatch)
    assert certificates_in(settings).names_servers == (name != "scheduler")
    roles = dict(each.split("=") for each in settings.tls_roles.split(","))
    assert roles.pop("access.tradewind.svc", None) == ("admin" if name == "access" else None)
    assert roles == {f"{caller}.tradewind.svc": "worker" if caller == "worker" else "service" for caller in callers}
    for caller in callers:
        assert f"{caller}.tradewind.svc" in certificates()[f"tls-{caller}"]["dnsNames"]
    for template in workloads(FOLDER).values():
        assert not {"TRADEWIND_SERVICE_TOKEN", "TRADEWIND_TOKEN"} & set(environment(FOLDER, template))


def test_certificates_are_issued_by_one_authority() -> None:
    issuers = of_kind(FOLDER, "Issuer")
    for secret, certificate in certificates().items():
        issuer = issuers[certificate["issuerRef"]["name"]]["spec"]
        if certificate.get("isCA"):
            assert issuer == {"selfSigned": {}}
        else:
            assert certificates()[issuer["ca"]["secretName"]]["isCA"], secret
            assert _hours(certificate["renewBefore"]) * 2 < _hours(certificate["duration"])


def _hours(text: str) -> int:
    assert text.endswith("h")
    return int(text[:-1])


def test_keda_presents_a_client_certificate() -> None:
    (scaled,) = of_kind(FOLDER, "ScaledObject").values()
    (trigger,) = scaled["spec"]["triggers"]
    authentication = of_kind(FOLDER, "TriggerAuthentication")[trigger["authenticationRef"]["name"]]
    given = {each["parameter"]: (each["name"], each["key"]) for each in authentication["spec"]["secretTargetRef"]}
    assert given == {
        name: ("tls-keda", key) for name, key in zip(("caCert", "tlsClientCert", "tlsClientKey"), KEYS, strict=True)
    }
    assert "client auth" in certificates()["tls-keda"]["usages"]


def test_mtls_overlay_has_no_gateway_route() -> None:
    assert of_kind(FOLDER, "GRPCRoute") == {}
    assert "from-gateway" not in of_kind(FOLDER, "NetworkPolicy")
