"""Roles, and which of them may do what another one may."""

from enum import StrEnum


class Role(StrEnum):
    """What somebody may do. WORKER is apart from the others: it runs node tasks and does nothing else."""

    ADMIN = "admin"
    OPERATOR = "operator"
    USER = "user"
    WORKER = "worker"
    SERVICE = "service"
    """A Tradewind server; it may what an admin may."""

    @property
    def rank(self) -> int:
        """The greater, the more it may do; 0 for WORKER."""
        return _RANKS[self]

    @property
    def sees_all(self) -> bool:
        """Whether what belongs to others may be seen and touched."""
        return self.rank >= Role.OPERATOR.rank


_RANKS = {Role.WORKER: 0, Role.USER: 1, Role.OPERATOR: 2, Role.ADMIN: 3, Role.SERVICE: 4}
"""Compared for the methods that are not a worker's."""
