"""The settings of the whole stack."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from tradewind.server.settings import ConnectionSettings, TelemetrySettings, TlsSettings


class StandaloneSettings(ConnectionSettings, TelemetrySettings, TlsSettings):
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
