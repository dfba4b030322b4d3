"""The exceptions that use cases raise and callers receive; plain Python, no transport.

    Fault
    +-- InvalidInput          every violation of a request, each with its path
    +-- NotFound              the thing named does not exist
    +-- Conflict              it exists already, and is a different one
    +-- Aborted               somebody else was first; read again and decide anew
    +-- FailedPrecondition    its current status forbids this
    +-- Unauthenticated       nobody knows who calls
    +-- PermissionDenied      the caller is known, and may not do this
    +-- Unreadable            its record in the store has been changed by hand so that it cannot be read
    +-- Temporary
        +-- Exhausted         a limit is reached; later may work
        +-- Unavailable       this server, its store or a peer is away; it will work later, or elsewhere

`reason` is a name in the enum `tradewind.api.errors.v1.ErrorReason` without its prefix, such as `FLOW_NOT_FOUND`; it is
text here so that the domain needs no generated code. `tradewind.server.errors` turns faults into status codes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing wrong with a request: `path` as in `edges[3].target`, `message` for people.

    If it stands for several violations that are not listed one by one, `count` says how many.
    """

    path: str
    message: str
    count: int = 1


class Fault(Exception):
    """An outcome that the caller must learn of, with a reason that programs can check."""

    def __init__(self, reason: str, message: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.metadata: dict[str, str] = dict(metadata or {})


class InvalidInput(Fault):
    """A request that cannot be understood or accepted as it stands."""

    def __init__(self, violations: Iterable[Violation], reason: str = "INVALID_INPUT") -> None:
        self.violations = tuple(violations)
        if not self.violations:
            raise ValueError("InvalidInput needs at least one violation")
        first = self.violations[0]
        more = sum(violation.count for violation in self.violations) - 1
        super().__init__(reason, f"{first.path}: {first.message}" + (f" (and {more} more)" if more else ""))


class NotFound(Fault):
    """The `what` (such as `flow` or `node task`) with this id does not exist; the reason follows from `what`.

    The message ends with `hint`. `metadata` names it where the fields of requests do not name it by `<what>_id` alone.
    """

    def __init__(
        self, what: str, id: str, reason: str | None = None, hint: str = "", metadata: Mapping[str, str] | None = None
    ) -> None:
        name = what.replace(" ", "_").replace("-", "_")
        named = metadata or {f"{name.lower()}_id": id}
        super().__init__(reason or f"{name.upper()}_NOT_FOUND", f'no {what} "{id}"{hint}', named)


class Conflict(Fault):
    """Something else already has this name or this request id."""


class Aborted(Fault):
    """Somebody else changed it first, or a policy gave way; reading it again and repeating may work."""


class FailedPrecondition(Fault):
    """The current status of `subject` (such as `flows/momentum`) forbids what was asked."""

    def __init__(self, reason: str, message: str, subject: str, metadata: Mapping[str, str] | None = None) -> None:
        super().__init__(reason, message, metadata)
        self.subject = subject


class Unauthenticated(Fault):
    """The call carries no token, or a bad one; with a good one it would be considered."""


class PermissionDenied(Fault):
    """The caller is known and has no right to this."""


class Unreadable(Fault):
    """Somebody has changed the record under `key` in the store by hand so that it cannot be read; `why` says more."""

    def __init__(self, key: str, why: str) -> None:
        what_to_do = "put it right, remove it, or restore a backup"
        super().__init__("RECORD_UNREADABLE", f"the record {key} cannot be read: {why}; {what_to_do}", {"key": key})
        self.key = key


class Temporary(Fault):
    """An outcome that passes: trying again after `retry_after_s` seconds may succeed."""

    def __init__(
        self, reason: str, message: str, retry_after_s: float = 1.0, metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(reason, message, metadata)
        self.retry_after_s = retry_after_s


class Exhausted(Temporary):
    """A limit is reached."""


class Unavailable(Temporary):
    """Something needed is away for now; trying again, perhaps elsewhere, should work."""
