"""Collects every fault of a definition, or every warning, keeping the first hundred and counting the rest."""

from tradewind.server.faults import Violation

FAULT_LIMIT = 100
"""How many violations are listed one by one."""


class FaultList:
    """Faults in the order in which they were found. Time and memory stay bounded however many there are.

    If the definition is `on_record`, a replica with newer tzdata may have accepted its time zone: that is no fault.
    """

    def __init__(self, *, on_record: bool = False) -> None:
        self.on_record = on_record
        self._kept: list[Violation] = []
        self._count = 0

    def add(self, path: str, message: str) -> None:
        """Add the fault at `path`; `message` says what is wrong."""
        self._count += 1
        if self._count <= FAULT_LIMIT:
            self._kept.append(Violation(path, message))

    @property
    def full(self) -> bool:
        """True once a further fault would only be counted, so that its message need not be composed."""
        return self._count >= FAULT_LIMIT

    def copy(self) -> "FaultList":
        """Return an independent list with the same faults."""
        other = FaultList(on_record=self.on_record)
        other._kept = list(self._kept)
        other._count = self._count
        return other

    def violations(self) -> tuple[Violation, ...]:
        """Return the faults; if there are over a hundred, a last violation says how many are left out."""
        hidden = self._count - len(self._kept)
        if not hidden:
            return tuple(self._kept)
        return (*self._kept, Violation("flow", f"and {hidden} more", hidden))

    def __len__(self) -> int:
        return self._count
