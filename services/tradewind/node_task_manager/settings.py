"""Settings of the node task manager."""

from pydantic import Field, SecretStr

from tradewind.node_task_manager.domain.limits import Limits
from tradewind.server.settings import CommonSettings


class NodeTaskManagerSettings(CommonSettings):
    """Settings of the node task manager."""

    port: int = Field(7703, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    registry_address: str = Field(
        "127.0.0.1:7702", description="Where the registry is asked who a worker is; none takes every worker."
    )
    node_task_manager_shards: int = Field(
        1, ge=1, le=1024, description="How many shards users are spread over; fixed once there is data."
    )
    node_task_manager_lease_seconds: float = Field(
        30.0,
        ge=0.3,
        le=3600,
        description="A lease lapses this long after its last renewal; renewed three times as often.",
    )
    node_task_manager_stop_grace_seconds: float = Field(
        10.0, ge=0.1, le=600, description="How long a node has to end after a stop before it is closed without it."
    )
    node_task_manager_result_seconds: float = Field(
        86400.0, ge=60, le=31_622_400, description="How long results are kept after their task, batch or run has ended."
    )
    node_task_manager_retries_per_minute: int = Field(
        10,
        ge=0,
        le=1_000_000,
        description="How many further attempts of failed nodes a flow may have within a minute, whatever else it does.",
    )
    node_task_manager_retry_percent: int = Field(
        20,
        ge=0,
        le=100,
        description="How many further attempts in a hundred begun a flow may have, where that is more.",
    )
    node_task_manager_task_events: int = Field(
        250, ge=1, le=10_000, description="How many of an ad-hoc task's events are kept, the newest."
    )
    node_task_manager_notifications: int = Field(
        1_000, ge=1, le=100_000, description="How many notifications of a user are kept, the newest."
    )
    node_task_manager_notification_days: float = Field(
        7.0, ge=0.01, le=365, description="For how many days a notification is kept at most."
    )
    cache_url: str | None = Field(
        None,
        description="A store for cached results alone, which may evict them; where not set, they go to the store.",
    )
    cache_user: str | None = Field(None, description="ACL user to log in to that store as; overrides the URL's.")
    cache_password: SecretStr | None = Field(None, description="Password of that user; overrides the URL's.")
    node_task_manager_clean_seconds: float = Field(
        5.0,
        ge=0.2,
        le=600,
        description="How often is cleaned; another replica takes over from one that has not for three times so long.",
    )
    node_task_manager_clean_keys_per_second: int = Field(
        20_000,
        ge=100,
        le=1_000_000,
        description="How many keys the replica that cleans a shard looks at or removes in a second, at most.",
    )
    node_task_manager_settle_seconds: float = Field(
        60.0,
        ge=0,
        le=86_400,
        description="How long an ended run is kept in any case, however few cycles its flow keeps.",
    )
    node_task_manager_look_seconds: float = Field(
        5.0, ge=0.1, le=86_400, description="How often is looked for news that may have been lost on the way."
    )
    node_task_manager_called_seconds: float = Field(
        1.0, ge=0.1, le=86_400, description="How often the registry is asked which workers are to be called."
    )
    node_task_manager_stream_grace_seconds: float = Field(
        2.0, ge=0, le=60, description="How long a worker has to come back before what it held is given to others."
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
