"""Variables that nodes keep: those of a cycle, and those of a flow, which carry from cycle to cycle."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

MAX_BYTES = 64 * 1024
"""The largest total size of the variables, as one JSON object."""
REMEMBERED = 32
"""How many of the newest changes are remembered by id, so that repeating one does nothing."""


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """Variables to set, as JSON text by name, and to delete.

    The change is made only if `expected_version` is None or the version on record. A change whose id is among those of
    the newest changes has been made already; "" means no id.
    """

    assigned: Mapping[str, str] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()
    expected_version: int | None = None
    change_id: str = ""


@dataclass(frozen=True, slots=True)
class Memory:
    """`variables` holds JSON text by name; each change raises `version`, which is 0 before the first."""

    variables: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    version: int = 0
    changes: tuple[str, ...] = ()

    def has_applied(self, change: MemoryChange) -> bool:
        """Say whether the change is among the newest changes made."""
        return change.change_id != "" and change.change_id in self.changes

    def accepts(self, change: MemoryChange) -> bool:
        """Say whether the change may be made to this version."""
        return change.expected_version in (None, self.version)

    def with_change(self, change: MemoryChange) -> "Memory":
        """Return the memory with the change made, one version up."""
        kept = {name: value for name, value in self.variables.items() if name not in change.deleted}
        known = (*self.changes, change.change_id) if change.change_id else self.changes
        return Memory(MappingProxyType({**kept, **change.assigned}), self.version + 1, known[-REMEMBERED:])

    @property
    def size(self) -> int:
        """The size in bytes of its variables as one JSON object, quotes and commas included."""
        return 2 + sum(len(name.encode()) + len(value.encode()) + 4 for name, value in self.variables.items())


NO_MEMORY = Memory()
"""The memory before the first change."""
