"""Identities by certificate, as TRADEWIND_TLS_ROLES maps them; a token takes precedence."""

from typing import Any

import pytest

from tests.gate_calls import Authority, Context, Owners, call
from tradewind.api.scheduler.v1.scheduler_service_pb2 import GetFlowRequest, PauseFlowRequest
from tradewind.scheduler.rpc.checks import actor_and_reason
from tradewind.server.access.certificates import CertificateRoles, certificate_roles_of
from tradewind.server.access.gate import Gate
from tradewind.server.access.gate_settings import gate_of
from tradewind.server.access.identity import Identity
from tradewind.server.access.roles import Role
from tradewind.server.faults import PermissionDenied, Unauthenticated
from tradewind.server.settings import CommonSettings, load_settings

SETTING = "scheduler.tradewind.svc=service, spiffe://cluster/ops/*=operator ,*.workers.example=worker,"


def identity(roles: CertificateRoles, *names: str) -> Identity | None:
    context: Any = Context(None, *names)
    return roles.identity(context)


@pytest.mark.parametrize(
    ("names", "role"),
    [
        (["scheduler.tradewind.svc"], Role.SERVICE),
        (["scheduler", "scheduler.tradewind.svc"], Role.SERVICE),
        (["spiffe://cluster/ops/olga"], Role.OPERATOR),
        (["a.workers.example"], Role.WORKER),
        (["a.workers.example", "scheduler.tradewind.svc"], Role.SERVICE),
        (["scheduler.tradewind.svc.elsewhere.example"], None),
        (["scheduler"], None),
        ([], None),
    ],
)
def test_first_matching_name_gives_the_role_and_unknown_names_none(names: list[str], role: Role | None) -> None:
    found = identity(certificate_roles_of(SETTING), *names)
    assert (found and found.role) == role


def test_certificate_identity_is_never_a_stored_user() -> None:
    """Otherwise its holder could open sessions for the user of that name."""
    found = identity(certificate_roles_of("admin=operator"), "admin")
    assert found == Identity("certificate:admin", Role.OPERATOR)


@pytest.mark.parametrize("text", ["scheduler", "=service", "scheduler=", "scheduler=user", "scheduler=root"])
def test_invalid_certificate_roles_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"write NAME=ROLE|is not a role for a certificate"):
        certificate_roles_of(text)
    with pytest.raises(ValueError, match=r"^TRADEWIND_TLS_ROLES: "):
        gate_of(load_settings(CommonSettings, tls_roles=text), [])


@pytest.mark.parametrize(
    ("field", "text"), [("tls_roles", "scheduler=service"), ("rate_limits", "RunFlow=60/m"), ("quotas", "RunFlow=200")]
)
def test_settings_that_need_access_are_refused_without_it(field: str, text: str) -> None:
    settings = load_settings(CommonSettings, **{field: text})
    with pytest.raises(ValueError, match=f"^TRADEWIND_{field.upper()} depends on who calls.*set TRADEWIND_ACCESS"):
        gate_of(settings, [])


def test_server_needs_a_service_token_or_certificate_for_access() -> None:
    settings = load_settings(CommonSettings, access_address="localhost:7705")
    with pytest.raises(ValueError, match=r"TRADEWIND_SERVICE_TOKEN is required .*TRADEWIND_TLS_CERT"):
        gate_of(settings, [])


def test_accepted_service_tokens_must_not_be_short() -> None:
    settings = load_settings(
        CommonSettings, access_address="localhost:7705", service_token="x" * 16, service_tokens_accepted="short"
    )
    with pytest.raises(ValueError, match=r"^TRADEWIND_SERVICE_TOKENS_ACCEPTED: each secret must have at least 16"):
        gate_of(settings, [])


async def test_token_takes_precedence_over_certificate() -> None:
    """A server that forwards a user's call, and is known as a server, is not taken for the user."""
    authority = Authority()
    owning = {"tradewind.api.scheduler.v1.SchedulerService": Owners()}
    gate = Gate(authority, cache_s=60, owner_lookups=owning, certificates=certificate_roles_of("*.svc=service"))
    request, door = GetFlowRequest(flow_id="bob-1"), "door.svc"
    found, _ = await call(gate, "GetFlow", request, None, door)
    assert found == Identity("service", Role.SERVICE)
    assert authority.asked == 0
    with pytest.raises(PermissionDenied):
        await call(gate, "GetFlow", request, authority.token("ann"), door)
    with pytest.raises(Unauthenticated):
        await call(gate, "GetFlow", request, "guessed", door)
    with pytest.raises(Unauthenticated) as refusal:
        await call(gate, "GetFlow", request, None, "elsewhere.example")
    assert refusal.value.reason == "TOKEN_MISSING"


async def test_long_name_in_a_certificate_is_cut_where_it_says_who_asks() -> None:
    """The longest of such names that services accept is shorter than the URI in a certificate may be."""
    gate = Gate(Authority(), certificates=certificate_roles_of("spiffe://cluster/*=operator"))
    name = f"spiffe://cluster/{'ops/' * 40}olga"
    _, request = await call(gate, "PauseFlow", PauseFlowRequest(flow_id="prices"), None, name)
    by, _ = actor_and_reason(request, "note")
    assert f"certificate:{name}".startswith(by)
    assert len(by) == 128
