"""The settings of the registry."""

from pydantic import Field

from tradewind.server.settings import CommonSettings


class RegistrySettings(CommonSettings):
    """Settings of the registry."""

    port: int = Field(7702, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    registry_heartbeat_seconds: float = Field(
        20.0, ge=0.1, le=86_400, description="Seconds between two heartbeats of a worker."
    )
    registry_time_to_live_seconds: float = Field(
        60.0,
        ge=0.3,
        le=7 * 24 * 3600,
        description="Seconds without a heartbeat after which a worker is offline; at least three heartbeat intervals.",
    )
    registry_retention_seconds: float = Field(
        24 * 3600.0,
        ge=0,
        le=30 * 24 * 3600,
        description="Seconds for which an offline worker, and a node type that nobody offers, stay on record.",
    )
    registry_sweep_seconds: float = Field(
        60.0, ge=0.1, le=86_400, description="Seconds between two sweeps that remove lapsed entries from the indexes."
    )
