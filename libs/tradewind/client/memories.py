"""Variables that nodes keep: of a cycle, or of a flow from cycle to cycle."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class MemoryRecord:
    """Variables by name, and the version that they are at: it rises with each change, from 0 on."""

    variables: Mapping[str, Any]
    version: int
