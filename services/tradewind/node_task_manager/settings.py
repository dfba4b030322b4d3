"""Settings of the node task manager."""

from typing import Annotated

from pydantic import AfterValidator, Field, SecretStr

from tradewind.node_task_manager.domain.limits import Limits
from tradewind.server.settings import CommonSettings, server_address


def _registry_address(address: str) -> str:
    return address if address in ("", "none") else server_address(address)


class NodeTaskManagerSettings(CommonSettings):
    """Settings of the node task manager."""

    port: int = Field(7703, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    registry_address: Annotated[str, AfterValidator(_registry_address)] = Field(
        "127.0.0.1:7702", description='Address of the registry, which knows all workers; "none" accepts every worker.'
    )
    node_task_manager_shards: int = Field(
        1, ge=1, le=1024, description="Number of shards that users are spread over; fixed once there is data."
    )
    node_task_manager_lease_seconds: float = Field(
        30.0,
        ge=0.3,
        le=3600,
        description="A lease lapses this long after its last renewal; workers renew it three times in that period.",
    )
    node_task_manager_stop_grace_seconds: float = Field(
        10.0,
        ge=0.1,
        le=600,
        description="How long a node may take to end after a stop before its node task is terminated anyway.",
    )
    node_task_manager_result_seconds: float = Field(
        86400.0, ge=60, le=31_622_400, description="How long results are kept after their task, batch or run has ended."
    )
    node_task_manager_retries_per_minute: int = Field(
        10, ge=0, le=1_000_000, description="How many retries of failed nodes a flow may always have within a minute."
    )
    node_task_manager_retry_percent: int = Field(
        20,
        ge=0,
        le=100,
        description="Retries that a flow may have per 100 attempts begun, if that is more than the number per minute.",
    )
    node_task_manager_task_events: int = Field(
        250, ge=1, le=10_000, description="How many of the newest events of an ad-hoc task or a watched node are kept."
    )
    node_task_manager_notifications: int = Field(
        1_000, ge=1, le=100_000, description="How many of a user's newest notifications are kept."
    )
    node_task_manager_notification_days: float = Field(
        7.0, ge=0.01, le=365, description="How many days a notification is kept at most."
    )
    cache_url: str | None = Field(
        None,
        description="A separate store for cached results, which may evict them; if not set, they go to the main store.",
    )
    cache_user: str | None = Field(None, description="ACL user to log in to that store as; overrides the URL's.")
    cache_password: SecretStr | None = Field(None, description="Password of that user; overrides the URL's.")
    node_task_manager_clean_seconds: float = Field(
        5.0,
        ge=0.2,
        le=600,
        description="How often a shard is cleaned; another replica takes over after three times as long without.",
    )
    node_task_manager_clean_keys_per_second: int = Field(
        50_000,
        ge=100,
        le=1_000_000,
        description="How many keys per second the replica that cleans a shard examines or removes, at most.",
    )
    node_task_manager_settle_seconds: float = Field(
        60.0,
        ge=0,
        le=86_400,
        description="How long an ended run is kept in any case, however few cycles its flow keeps.",
    )
    node_task_manager_poll_seconds: float = Field(
        5.0, ge=0.1, le=86_400, description="How often to poll for changes of which nobody was notified."
    )
    node_task_manager_called_seconds: float = Field(
        1.0, ge=0.1, le=86_400, description="How often the registry is asked which workers are to be called."
    )
    node_task_manager_stream_grace_seconds: float = Field(
        2.0, ge=0, le=60, description="How long a lost worker has to come back before its node tasks go to others."
    )

    def limits(self) -> Limits:
        """Return the limits of every shard."""
        return Limits(
            lease_ms=int(self.node_task_manager_lease_seconds * 1000),
            retention_ms=int(self.node_task_manager_result_seconds * 1000),
            stop_grace_ms=int(self.node_task_manager_stop_grace_seconds * 1000),
            retries=self.node_task_manager_retries_per_minute,
            retry_percent=self.node_task_manager_retry_percent,
            task_events=self.node_task_manager_task_events,
            notifications=self.node_task_manager_notifications,
            notification_retention_ms=int(self.node_task_manager_notification_days * 24 * 3600 * 1000),
            cleaner_lease_ms=int(3000 * self.node_task_manager_clean_seconds),
            settle_ms=int(self.node_task_manager_settle_seconds * 1000),
        )
