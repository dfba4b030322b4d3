"""Roles, and which of them include which."""

from enum import StrEnum


class Role(StrEnum):
    """What a caller may do. WORKER stands apart from the others: it runs node tasks and does nothing else."""

    ADMIN = "admin"
    OPERATOR = "operator"
    USER = "user"
    WORKER = "worker"
    SERVICE = "service"
    """A Tradewind server; it may do what an admin may."""

    @property
    def rank(self) -> int:
        """The higher, the more the role may do; 0 for WORKER."""
        return _RANKS[self]

    @property
    def sees_all(self) -> bool:
        """Whether the role may see and touch what belongs to others."""
        return self.rank >= Role.OPERATOR.rank


_RANKS = {Role.WORKER: 0, Role.USER: 1, Role.OPERATOR: 2, Role.ADMIN: 3, Role.SERVICE: 4}
"""Only methods that are not for workers alone compare ranks."""
