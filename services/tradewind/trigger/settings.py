"""The settings of the trigger service."""

from pydantic import Field

from tradewind.server.settings import CommonSettings
from tradewind.trigger.domain.policy import Policy


class TriggerSettings(CommonSettings):
    """Settings of the trigger service."""

    port: int = Field(7704, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    trigger_lease_seconds: float = Field(
        30.0,
        ge=0.1,
        le=3600,
        description="How long a receiver has to acknowledge a trigger before it is delivered again.",
    )
    trigger_max_failures: int = Field(
        10, ge=1, le=1_000_000, description="After how many failures in a row a trigger goes to the dead letters."
    )
    trigger_backoff_initial_seconds: float = Field(
        1.0,
        ge=0.001,
        le=3600,
        description="Delay after a first failure that sets none itself; it doubles with each further failure.",
    )
    trigger_backoff_max_seconds: float = Field(300.0, ge=0.001, le=86_400, description="The longest such delay.")
    trigger_retention_days: float = Field(
        7.0, ge=0.01, le=3650, description="How long completed and dead triggers are kept."
    )
    trigger_dead_letters_kept: int = Field(
        1_000, ge=1, le=1_000_000, description="How many dead triggers are kept per partition; the oldest goes first."
    )
    trigger_firings_kept: int = Field(
        1_000, ge=1, le=1_000_000, description="How many lines of fire history are kept per partition."
    )
    trigger_pending_firings: int = Field(
        500,
        ge=1,
        le=500,
        description="How many firings of a trigger that listens to events may wait; further ones are dropped.",
    )
    trigger_queue_triggers: int = Field(100_000, ge=1, le=10_000_000, description="How many triggers a queue may hold.")
    trigger_sweep_seconds: float = Field(
        300.0, ge=0.05, le=86_400, description="How often the indexes are searched for entries without a trigger."
    )
    trigger_poll_seconds: float = Field(
        5.0,
        ge=0.1,
        le=86_400,
        description="How often to check for due triggers that nobody announced, as when a wake-up was lost.",
    )
    trigger_overdue_seconds: float = Field(
        300.0,
        ge=1,
        le=86_400,
        description="How late a trigger may be before an error in the log says that nobody receives it.",
    )
    trigger_max_payload_bytes: int = Field(
        64 * 1024, ge=1, le=1024 * 1024, description="Size of the largest payload of a trigger, in bytes."
    )

    def policy(self) -> Policy:
        """Return the numbers that govern a trigger's life."""
        return Policy(
            lease_ms=round(self.trigger_lease_seconds * 1000),
            max_failures=self.trigger_max_failures,
            backoff_initial_ms=round(self.trigger_backoff_initial_seconds * 1000),
            backoff_max_ms=round(self.trigger_backoff_max_seconds * 1000),
            retention_ms=round(self.trigger_retention_days * 86_400_000),
            dead_kept=self.trigger_dead_letters_kept,
            firings_kept=self.trigger_firings_kept,
            max_pending=self.trigger_pending_firings,
            max_queue_triggers=self.trigger_queue_triggers,
        )
