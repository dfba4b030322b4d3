"""Builds the gate of a server from its settings and services."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar, runtime_checkable

from tradewind.grpc_engine.bearer import with_token
from tradewind.server.access.authority import Authority
from tradewind.server.access.certificates import CertificateRoles, certificate_roles_of
from tradewind.server.access.gate import Gate, OwnerLookup
from tradewind.server.access.limits import quotas_of, rates_of
from tradewind.server.access.methods import counted_names
from tradewind.server.access.remote import RemoteAuthority
from tradewind.server.bootstrap import Service
from tradewind.server.channels import channels_of
from tradewind.server.nearest_name import NearestName
from tradewind.server.rates import Rate
from tradewind.server.settings import MIN_SECRET_CHARACTERS, CommonSettings, TlsSettings, parts_of, text_of, variable_of

_Limit = TypeVar("_Limit")


@runtime_checkable
class Authorizing(Protocol):
    """A service that is the authority itself: the access service."""

    @property
    def authority(self) -> Authority: ...


def gate_of(settings: CommonSettings, services: Sequence[Service]) -> Gate | None:
    """Return the gate of a server of `services`; None while access is off.

    Raises ValueError, naming the variable: with an access service, when there is no token or certificate to show to it;
    without one, when a setting depends on who calls.
    """
    token, tokens = text_of(settings.service_token), service_tokens_in(settings)
    certificates = certificates_in(settings)
    authority = next((each.authority for each in services if isinstance(each, Authorizing)), None)
    if authority is None:
        if not settings.access_address:
            require_open(settings)
            return None
        if not (token or settings.tls_cert):
            raise ValueError(
                f"{variable_of('service_token')} is required when {variable_of('access_address')} is set, or else a "
                f"certificate ({variable_of('tls_cert')}) with a name that {variable_of('tls_roles')} of the access "
                "service lists"
            )
        authority = RemoteAuthority(with_token(channels_of(settings)(settings.access_address, traced=False), token))
    return Gate(
        authority,
        service_tokens=tokens,
        cache_s=settings.access_cache_seconds,
        on_outage=settings.access_on_outage,
        owner_lookups=owner_lookups_of(services),
        rates=rates_in(settings),
        quotas=quotas_in(settings),
        certificates=certificates,
    )


def require_open(settings: CommonSettings) -> None:
    """Check that no setting depends on who calls, where tokens are off. Raises ValueError, naming the variable."""
    for field in ("tls_roles", "rate_limits", "quotas"):
        if getattr(settings, field):
            raise ValueError(
                f"{variable_of(field)} depends on who calls, but this server does not check callers: set "
                f"{variable_of('access_address')} (or {variable_of('auth')} for a whole stack) as well, or unset it"
            )


def service_tokens_in(settings: CommonSettings) -> list[str]:
    """Return the secrets that identify other servers. Raises ValueError, naming the variable."""
    further = parts_of(text_of(settings.service_tokens_accepted))
    if any(len(each) < MIN_SECRET_CHARACTERS for each in further):
        raise ValueError(
            f"{variable_of('service_tokens_accepted')}: each secret must have at least {MIN_SECRET_CHARACTERS} "
            "characters"
        )
    return [each for each in (text_of(settings.service_token), *further) if each]


def certificates_in(settings: TlsSettings) -> CertificateRoles:
    """Return which roles certificates stand for. Raises ValueError, naming the variable."""
    try:
        return certificate_roles_of(settings.tls_roles)
    except ValueError as error:
        raise ValueError(f"{variable_of('tls_roles')}: {error}") from None


def rates_in(settings: CommonSettings) -> Mapping[str, Rate]:
    """Return the rates in the settings. Raises ValueError, naming the variable."""
    return _limits_in("rate_limits", settings.rate_limits, rates_of)


def quotas_in(settings: CommonSettings) -> Mapping[str, int]:
    """Return the daily quotas in the settings. Raises ValueError, naming the variable."""
    return _limits_in("quotas", settings.quotas, quotas_of)


def _limits_in(field: str, text: str, read: Callable[[str], Mapping[str, _Limit]]) -> Mapping[str, _Limit]:
    try:
        limits = read(text)
        counted = counted_names()
        if unknown := sorted(set(limits) - set(counted)):
            nearest = NearestName(counted)
            faults = [
                f"there is no {name} that users may call{nearest.hint(name, '; leave it out')}" for name in unknown
            ]
            raise ValueError(", ".join(faults))
    except ValueError as error:
        raise ValueError(f"{variable_of(field)}: {error}") from None
    return limits


def owner_lookups_of(services: Sequence[Service]) -> dict[str, OwnerLookup]:
    """Return the services that know who owns what, by the names of their gRPC services."""
    return {name: each for each in services if isinstance(each, OwnerLookup) for name in each.names}
