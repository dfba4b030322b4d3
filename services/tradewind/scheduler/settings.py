"""The settings of the scheduler."""

from pydantic import Field

from tradewind.server.settings import CommonSettings


class SchedulerSettings(CommonSettings):
    """Settings of the scheduler."""

    port: int = Field(7701, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    node_task_manager_address: str = Field("127.0.0.1:7703", description="Where the node task manager answers.")
    trigger_address: str = Field("127.0.0.1:7704", description="Where the trigger service answers.")
    registry_address: str = Field("127.0.0.1:7702", description="Where the registry answers.")
    scheduler_lease_seconds: float = Field(
        6.0,
        ge=0.3,
        le=86_400,
        description="Other replicas take over what this one owns when it has not renewed for so long.",
    )
    scheduler_sole: bool = Field(
        False, description="No other replica runs: what a predecessor held when it died is taken over at once."
    )
    scheduler_lead_seconds: float = Field(
        0.8,
        ge=0,
        le=1,
        description="how long before their time due cycles may be put on record and handed out; workers begin them "
        "in time; 0 for not at all",
    )
    scheduler_check_in_seconds: float = Field(
        5.0, ge=0.1, le=600, description="A cycle of which nothing was heard for so long is looked after."
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
        description="How often the indexes of flows are looked through for cycles that are kept no more.",
    )
    scheduler_settle_seconds: float = Field(
        60.0,
        ge=0,
        le=86_400,
        description="How long an ended cycle is kept in any case, however few of them its flow keeps.",
    )
    scheduler_look_seconds: float = Field(
        5.0,
        ge=0.1,
        le=86_400,
        description="How often is looked for what is due and of which nobody told, as when a wake-up was lost.",
    )
    scheduler_compare_seconds: float = Field(
        30.0, ge=0.1, le=3600, description="How often an open cycle is compared with the node task manager."
    )
