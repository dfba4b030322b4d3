"""Settings: read from the environment, checked at once, and able to print a table of themselves."""

from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, SecretStr, ValidationError, field_validator
from pydantic_core import PydanticCustomError, PydanticUndefined
from pydantic_settings import BaseSettings, SettingsConfigDict
from rich.console import Console
from rich.table import Table

from tradewind.tls.channels import target_of
from tradewind.tls.files import StoreTlsFiles, TlsFiles

PREFIX = "TRADEWIND_"
MIN_SECRET_CHARACTERS = 16
"""The least number of characters in a secret of servers."""


def server_address(address: str) -> str:
    """Return an address that is `host:port` or a gRPC target; refuse others, such as `http://registry:7702`."""
    try:
        target_of(address)
    except ValueError as error:
        raise PydanticCustomError("address", "{error}", {"error": str(error)}) from None
    return address


ServerAddress = Annotated[str, AfterValidator(server_address)]
"""The address of another server."""


class SettingsError(Exception):
    """The environment holds unusable values; the message names each variable."""


class Settings(BaseSettings):
    """The settings of one server, in a frozen class in which every field has a description.

    A field `store_url` is read from the variable `TRADEWIND_STORE_URL`; empty variables count as not set.
    """

    model_config = SettingsConfigDict(env_prefix=PREFIX, frozen=True, env_ignore_empty=True, extra="ignore")

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        undescribed = [name for name, field in cls.model_fields.items() if not field.description]
        if undescribed:
            raise TypeError(f"settings of {cls.__name__} without a description: {', '.join(undescribed)}")


class TlsSettings(Settings):
    """The certificates of a server; without any, it speaks plain text."""

    tls_cert: Path | None = Field(
        None, description="PEM file of the certificate and its chain; read again when it is replaced."
    )
    tls_key: Path | None = Field(None, description="PEM file of the certificate's key.")
    tls_ca: str | None = Field(
        None,
        description="PEM file of the CA that signs the certificates of other servers and of callers; system for the "
        "CAs that this machine trusts.",
    )
    tls_server_name: str | None = Field(
        None, description="The name in the certificates of the servers that it calls, if not the one in their address."
    )
    tls_require_client_cert: bool = Field(
        False, description="Whether callers must show a certificate that the CA has signed (mTLS)."
    )
    tls_allowed_names: str | None = Field(
        None,
        description="Names in certificates whose holders may call, as patterns with *, separated by commas; "
        "everybody with a certificate when not set.",
    )
    tls_roles: str = Field(
        "",
        description="Roles of callers without a token, by the names in their certificates (patterns with *), such as "
        "scheduler.tradewind.svc=service,*.workers.example=worker; callers must then show a certificate.",
    )
    health_port: int = Field(
        0, ge=0, le=65535, description="Port that serves health in plain text, for probes without TLS; 0 for none."
    )

    def tls_files(self) -> TlsFiles | None:
        """Return where the certificates are; None for plain text."""
        return TlsFiles.find(self.tls_ca, self.tls_cert, self.tls_key, self.tls_server_name, environment={})


class TelemetrySettings(Settings):
    """Settings of servers and workers for logs, traces and metrics."""

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The lowest level that is logged."
    )
    log_format: Literal["console", "json"] = Field(
        "console", description="Lines for people, or one JSON object per line."
    )
    otlp_endpoint: str | None = Field(
        None, description="OTLP endpoint that gets traces over gRPC, such as http://host:4317; none when not set."
    )
    trace_sampling: float = Field(1.0, ge=0, le=1, description="Share of new traces to record, from 0 to 1.")
    metrics_port: int = Field(0, ge=0, le=65535, description="Port that serves /metrics for Prometheus; 0 for none.")
    metrics_host: str | None = Field(
        None, description="Address to serve /metrics on; the server's own, or 127.0.0.1, when not set."
    )
    metrics_seconds: float = Field(
        5.0, ge=0.05, le=3600, description="Seconds between two readings of the queues and the store for metrics."
    )

    @field_validator("otlp_endpoint")
    @classmethod
    def _can_be_reached(cls, endpoint: str | None) -> str | None:
        """Refuse what is no address, and `http://host:4318/v1/traces`.

        The exporter would drop the path and speak the wrong protocol.
        """
        if not endpoint:
            return endpoint
        address = endpoint
        if endpoint.startswith(("http://", "https://")):
            address = endpoint.partition("://")[2].rstrip("/")
            if "/" in address:
                message = "traces go over gRPC, to http://host:4317 without a path; OTLP over HTTP is not supported"
                raise PydanticCustomError("endpoint", message)
            address = address if ":" in address else f"{address}:443"
        try:
            target_of(address)
        except ValueError:
            message = '"{endpoint}" is no endpoint for traces: give one such as http://host:4317'
            raise PydanticCustomError("endpoint", message, {"endpoint": endpoint}) from None
        return endpoint


class ConnectionSettings(Settings):
    """What a server takes from its clients."""

    max_connection_age_seconds: float = Field(
        0.0, ge=0, description="Age at which clients are asked to reconnect, to spread over replicas; 0 means never."
    )
    max_connection_idle_seconds: float = Field(
        1800.0,
        ge=0,
        le=31_622_400,
        description="Seconds after which a connection without calls is closed; 0 means never.",
    )
    max_connections: int = Field(
        0,
        ge=0,
        le=10_000_000,
        description="Most connections at a time, further ones are closed; 0 for as many as open files allow.",
    )
    max_message_bytes: int = Field(
        4 * 1024 * 1024,
        ge=1024,
        le=1024 * 1024 * 1024,
        description="Size of the largest request that is accepted, in bytes; at most 1 GiB.",
    )


class CommonSettings(ConnectionSettings, TelemetrySettings, TlsSettings):
    """The settings of every Tradewind server."""

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 for every interface.")
    port: int = Field(7700, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    store_url: str = Field(
        "redis://127.0.0.1:6379",
        description="The store: redis://, rediss://, unix://, redis+sentinel://h1,h2/<service> or redis+cluster://h1,h2.",
    )
    store_user: str | None = Field(None, description="ACL user to log in to the store as; overrides the URL's.")
    store_password: SecretStr | None = Field(None, description="Password of the store's user; overrides the URL's.")
    store_tls_ca: str | None = Field(
        None, description="PEM file of the CA for a store at rediss://; the CAs that this machine trusts when not set."
    )
    store_tls_cert: Path | None = Field(None, description="PEM file of a certificate to show to the store.")
    store_tls_key: Path | None = Field(None, description="PEM file of that certificate's key.")
    key_prefix: str = Field(
        "trading_flow", pattern=r"^[A-Za-z0-9_.-]+$", description="Prefix of every key in the store."
    )
    drain_seconds: float = Field(
        10.0, ge=0, le=3600, description="How long calls in flight may go on after SIGTERM before they are cut off."
    )
    metrics_store_user: str | None = Field(
        None, description="Store user that may call INFO, for metrics of the store; the service's own when not set."
    )
    metrics_store_password: SecretStr | None = Field(None, description="Password of that user.")
    doctor_seconds: float = Field(
        600.0, ge=0, le=86_400, description="Seconds between two checks for broken invariants; 0 for never."
    )
    doctor_records_per_second: int = Field(
        200, ge=1, le=100_000, description="Most records that such a check examines per second."
    )
    doctor_mend: bool = Field(True, description="Whether such a check mends what it finds, or only reports it.")
    access_address: ServerAddress | None = Field(
        None, description="Address of the access service; calls need a token when it is set, and none when not."
    )
    service_token: SecretStr | None = Field(
        None,
        min_length=MIN_SECRET_CHARACTERS,
        description="A secret shared by all servers, by which they recognize each other.",
    )
    service_tokens_accepted: SecretStr | None = Field(
        None,
        description="Further secrets accepted from other servers while the shared one is being changed, separated by "
        "commas.",
    )
    access_cache_seconds: float = Field(
        5.0,
        ge=0,
        le=60,
        description="Seconds for which the owner of a token is remembered; changes take effect at once.",
    )
    rate_limits: str = Field(
        "",
        description="Rates at which each user may call methods, as RunFlow=60/m,SubmitTask=10/s; operators are exempt.",
    )
    quotas: str = Field(
        "", description="Calls that each user may make per day, as SubmitTask=1000,RunFlow=200; operators are exempt."
    )
    access_on_outage: Literal["refuse", "reads", "all"] = Field(
        "reads",
        description="Calls still served while the access service is away, going by what was last known about a token.",
    )

    def store_tls_files(self) -> TlsFiles | None:
        """Return the certificates for the store; None for those that this machine trusts."""
        return StoreTlsFiles.find(self.store_tls_ca, self.store_tls_cert, self.store_tls_key, environment={})


AnySettings = TypeVar("AnySettings", bound=Settings)


def load_settings(settings: type[AnySettings], **overrides: Any) -> AnySettings:
    """Read settings from the environment; `overrides` take precedence.

    Raises SettingsError with one line per bad value, without repeating secrets.
    """
    try:
        return settings(**overrides)
    except ValidationError as error:
        lines = [
            f"{variable_of(str(fault['loc'][0]))}: {fault['msg']}"
            for fault in error.errors(include_url=False, include_input=False)
        ]
        raise SettingsError("\n".join(lines)) from None


def text_of(secret: SecretStr | None) -> str:
    """Return the text of a secret, "" for None."""
    return secret.get_secret_value() if secret is not None else ""


def parts_of(text: str) -> list[str]:
    """Return the parts of a list that is separated by commas, without the spaces around them and without empty ones."""
    return [part for each in text.split(",") if (part := each.strip())]


def variable_of(field: str) -> str:
    """Return the environment variable for a field."""
    return PREFIX + field.upper()


def settings_table(settings: type[Settings]) -> list[tuple[str, str, str]]:
    """Return the variable, default and description of each field, in order."""
    rows = []
    for name, field in settings.model_fields.items():
        if field.default is PydanticUndefined:
            default = "(required)"
        else:
            default = "" if field.default is None else str(field.default)
        rows.append((variable_of(name), default, field.description or ""))
    return rows


def print_settings(settings: type[Settings], console: Console | None = None) -> None:
    """Print the table of settings, as `--help-settings` does: wrapped at a terminal, one line for each in a pipe."""
    console = console or Console()
    rows = settings_table(settings)
    if not console.is_terminal:
        for variable, default, meaning in rows:
            line = f"{variable:50} {default:24} {meaning}"
            console.print(line, soft_wrap=True, markup=False, highlight=False)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("Variable", no_wrap=True)
    table.add_column("Default", overflow="fold")
    table.add_column("Meaning", overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(table, markup=False)
