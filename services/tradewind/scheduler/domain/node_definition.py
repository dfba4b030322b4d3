"""A node and an edge of a flow, as defined."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tradewind.scheduler.domain.cache_definition import CacheDefinition
from tradewind.scheduler.domain.concurrency import Concurrency
from tradewind.scheduler.domain.fan_out import FanOut
from tradewind.scheduler.domain.intervals import format_duration
from tradewind.scheduler.domain.json_text import canonical_json, joined_object
from tradewind.scheduler.domain.key_rate import KeyRate
from tradewind.scheduler.domain.retry_definition import RetryDefinition

SCHEDULE_TO_START_MS = 300_000
"""How long a ready node waits for a worker by default."""
START_TO_CLOSE_MS = 300_000
"""How long one attempt of a node may take by default."""


class RunIf(StrEnum):
    """When a node runs, once each of its input edges is live or dead."""

    ALL_SUCCEEDED = "all_succeeded"
    ANY_SUCCEEDED = "any_succeeded"
    ALL_DONE = "all_done"


@dataclass(frozen=True, slots=True)
class NodeDefinition:
    """A node; `config_json` is a canonical JSON object, and a time of 0 ms means no limit."""

    node_id: str
    node_type: str
    config_json: str = "{}"
    run_if: RunIf = RunIf.ALL_SUCCEEDED
    schedule_to_start_ms: int = SCHEDULE_TO_START_MS
    start_to_close_ms: int = START_TO_CLOSE_MS
    retry: RetryDefinition | None = None
    priority: int = 0
    concurrency: Concurrency | None = None
    rate: KeyRate | None = None
    total_ms: int = 0
    heartbeat_ms: int = 0
    cache: CacheDefinition | None = None
    fan_out: FanOut | None = None

    @property
    def further_timeouts(self) -> dict[str, int]:
        """The time limits, in ms, that are written under `timeouts`; a limit that is not set is left out."""
        timeouts = {"total": self.total_ms, "heartbeat": self.heartbeat_ms}
        return {name: ms for name, ms in timeouts.items() if ms}

    def to_json(self) -> str:
        """Return it as canonical JSON text of Weather Syntax, without fields at their defaults."""
        weather = self._without_config()
        if self.config_json == "{}":
            return canonical_json(weather)
        fields = {name: canonical_json(value) for name, value in weather.items()}
        return joined_object(fields | {"config": self.config_json})

    def _without_config(self) -> dict[str, Any]:
        weather: dict[str, Any] = {"id": self.node_id, "type": self.node_type}
        if self.run_if is not RunIf.ALL_SUCCEEDED:
            weather["run_if"] = self.run_if.value
        if self.schedule_to_start_ms != SCHEDULE_TO_START_MS:
            weather["schedule_to_start"] = format_duration(self.schedule_to_start_ms)
        if self.start_to_close_ms != START_TO_CLOSE_MS:
            weather["timeout"] = format_duration(self.start_to_close_ms)
        if self.further_timeouts:
            weather["timeouts"] = {name: format_duration(ms) for name, ms in self.further_timeouts.items()}
        if self.retry is not None:
            weather["retry"] = self.retry.to_weather()
        if self.priority:
            weather["priority"] = self.priority
        if self.concurrency is not None:
            weather["concurrency"] = self.concurrency.to_weather()
        if self.rate is not None:
            weather["rate"] = self.rate.to_weather()
        if self.cache is not None:
            weather["cache"] = self.cache.to_weather()
        if self.fan_out is not None:
            weather |= self.fan_out.to_weather()
        return weather


@dataclass(frozen=True, slots=True)
class EdgeDefinition:
    """An edge: values that `source` emits on `source_handle` reach `target` on `target_handle`."""

    source: str
    source_handle: str
    target: str
    target_handle: str

    def to_weather(self) -> dict[str, Any]:
        """Return it in Weather Syntax."""
        return {
            "source": self.source,
            "source_handle": self.source_handle,
            "target": self.target,
            "target_handle": self.target_handle,
        }
