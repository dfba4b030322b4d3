"""Variables that nodes keep: those of a cycle, and those of a flow, which carry from cycle to cycle."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

MOST_BYTES = 64 * 1024
"""How large the variables may be together, as one JSON object."""
REMEMBERED = 32
"""Of so many of the newest changes the ids are remembered, so that repeating one does nothing."""


@dataclass(frozen=True, slots=True)
class MemoryChange:
    """Variables to set, as JSON text by name, and to delete; over `expected_version` only, if that is not None.

    A change with the id of one of the newest changes was made already; "" is no id.
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

    def knows(self, change: MemoryChange) -> bool:
        """Say whether the change is among the newest that were made."""
        return change.change_id != "" and change.change_id in self.changes

    def expected_by(self, change: MemoryChange) -> bool:
        """Say whether this is the version that the change is meant for."""
        return change.expected_version in (None, self.version)

    def after(self, change: MemoryChange) -> "Memory":
        """Return it changed, one version on."""
        kept = {name: value for name, value in self.variables.items() if name not in change.deleted}
        known = (*self.changes, change.change_id) if change.change_id else self.changes
        return Memory(MappingProxyType({**kept, **change.assigned}), self.version + 1, known[-REMEMBERED:])

    @property
    def size(self) -> int:
        """How many bytes its variables take as one JSON object, quotes and commas included."""
        return 2 + sum(len(name.encode()) + len(value.encode()) + 4 for name, value in self.variables.items())


NO_MEMORY = Memory()
"""Before the first change."""
