"""The limits of the system as they stand, as far as they concern a user's flows."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StandingLimits:
    """How many node tasks may run at once, and begin in a time; 0 is no limit.

    `running` is how many of the user's do now.
    """

    max_running: int = 0
    max_running_per_user: int = 0
    max_running_per_flow: int = 0
    max_running_per_node_type: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, str] = field(default_factory=dict)
    running: int = 0
