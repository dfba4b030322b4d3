"""Variables that nodes keep: for a cycle, or for a flow from cycle to cycle."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """Variables by name, and their version, which starts at 0 and rises with each change."""

    variables: Mapping[str, Any]
    version: int
