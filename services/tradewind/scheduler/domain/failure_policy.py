"""What a failed node does to the rest of its component."""

from enum import StrEnum


class FailurePolicy(StrEnum):
    """Other branches go on; the component stops; or nodes downstream run with the input missing."""

    SKIP_DOWNSTREAM = "skip_downstream"
    FAIL_FAST = "fail_fast"
    CONTINUE = "continue"
