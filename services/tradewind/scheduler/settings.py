"""The settings of the scheduler."""

from pydantic import Field

from tradewind.server.settings import CommonSettings, ServerAddress


class SchedulerSettings(CommonSettings):
    """Settings of the scheduler."""

    port: int = Field(7701, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    node_task_manager_address: ServerAddress = Field("127.0.0.1:7703", description="Address of the node task manager.")
    trigger_address: ServerAddress = Field("127.0.0.1:7704", description="Address of the trigger service.")
    registry_address: ServerAddress = Field("127.0.0.1:7702", description="Address of the registry.")
    scheduler_lease_seconds: float = Field(
        6.0,
        ge=0.3,
        le=86_400,
        description="Other replicas take over this one's partitions if it has not renewed its ownership for this long.",
    )
    scheduler_single_replica: bool = Field(
        False,
        description="Set if no other replica runs: then partitions that a predecessor held when it died are taken over "
        "at once.",
    )
    scheduler_lead_seconds: float = Field(
        0.8,
        ge=0,
        le=1,
        description="How long before their planned time cycles may be put on record and handed out, so that workers "
        "begin them on time; 0 turns this off.",
    )
    scheduler_check_in_seconds: float = Field(
        5.0, ge=0.1, le=600, description="A cycle is checked if nothing has been heard of it for this long."
    )
    scheduler_listeners_seconds: float = Field(
        2.5,
        ge=0.05,
        le=86_400,
        description="How often the trigger service is asked whether anybody listens to the event flow.finished.",
    )
    scheduler_tidy_seconds: float = Field(
        3600.0,
        ge=0.1,
        le=86_400,
        description="How often the indexes of flows are searched for cycles that are no longer kept.",
    )
    scheduler_settle_seconds: float = Field(
        60.0, ge=0, le=86_400, description="How long an ended cycle is always kept, however few cycles its flow keeps."
    )
    scheduler_poll_seconds: float = Field(
        5.0,
        ge=0.1,
        le=86_400,
        description="How often to check for due work that nobody announced, for example because a wake-up was lost.",
    )
    scheduler_reconcile_seconds: float = Field(
        30.0, ge=0.1, le=3600, description="How often an open cycle is compared with the node task manager."
    )
