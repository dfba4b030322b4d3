"""The gate of a server, as its settings and services ask for."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from tradewind.grpc_engine.bearer import with_token
from tradewind.server.access.authority import Authority
from tradewind.server.access.gate import Gate, Owning
from tradewind.server.access.metering import rates_of
from tradewind.server.access.methods import methods
from tradewind.server.access.remote import RemoteAuthority
from tradewind.server.channels import channels_of
from tradewind.server.rates import Rate
from tradewind.server.settings import CommonSettings, text_of, variable_of


@runtime_checkable
class Authorizing(Protocol):
    """A service that is itself the authority: the access service."""

    @property
    def authority(self) -> Authority: ...


def gate_of(settings: CommonSettings, services: Sequence[Any]) -> Gate | None:
    """Return the gate of a server of `services`, None while access is off.

    Raises ValueError, naming the variable, when there is an access service and no service token to ask it with.
    """
    token = text_of(settings.service_token)
    authority = next((each.authority for each in services if isinstance(each, Authorizing)), None)
    if authority is None:
        if not settings.access_address:
            return None
        if not token:
            raise ValueError(f"{variable_of('service_token')} is required where {variable_of('access_address')} is set")
        authority = RemoteAuthority(with_token(channels_of(settings)(settings.access_address, traced=False), token))
    return Gate(
        authority,
        service_token=token,
        cache_s=settings.access_cache_seconds,
        on_outage=settings.access_on_outage,
        owning=owning_of(services),
        rates=rates_in(settings),
    )


def rates_in(settings: CommonSettings) -> Mapping[str, Rate]:
    """Return the limits of the settings. Raises ValueError, naming the variable."""
    try:
        rates = rates_of(settings.rate_limits)
        unknown = sorted(set(rates) - {each.rpartition("/")[2] for each in methods()})
        if unknown:
            raise ValueError(f"there is no method {', '.join(unknown)}")
    except ValueError as error:
        raise ValueError(f"{variable_of('rate_limits')}: {error}") from None
    return rates


def owning_of(services: Sequence[Any]) -> dict[str, Owning]:
    """Return the services that know whose things are, by the names of their gRPC services."""
    return {name: each for each in services if isinstance(each, Owning) for name in getattr(each, "names", ())}
