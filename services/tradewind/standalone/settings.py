"""The settings of the whole stack."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from tradewind.server.settings import TelemetrySettings, TlsSettings


class StandaloneSettings(TelemetrySettings, TlsSettings):
    """Settings of all services in one process; the environment may hold those of single services as well."""

    host: str = Field("127.0.0.1", description="Address to listen on; 0.0.0.0 for every interface.")
    port: int = Field(7700, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    data: Path = Field(Path(".tradewind"), description="Directory in which the embedded store keeps everything.")
    auth: bool = Field(
        False, description="Whether calls need a token; the first admin's token is written to the data directory."
    )
    store_url: str | None = Field(None, description="URL of a store to use instead of the embedded one.")
    node_task_manager_shards: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="How many shards users are spread over, 1 by default; cannot be changed once there is data.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "warning", description="The lowest level that is logged."
    )
    drain_seconds: float = Field(
        5.0, ge=0, le=3600, description="How long calls in flight may go on after a signal before they are cut off."
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
