"""The current limits of the system that concern a user's flows."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SystemLimits:
    """How many node tasks may run at once, and how many may begin per unit of time; 0 is no limit.

    `running` is how many node tasks of the user run now.
    """

    max_running: int = 0
    max_running_per_user: int = 0
    max_running_per_flow: int = 0
    max_running_per_node_type: Mapping[str, int] = field(default_factory=dict)
    rates: Mapping[str, str] = field(default_factory=dict)
    running: int = 0
