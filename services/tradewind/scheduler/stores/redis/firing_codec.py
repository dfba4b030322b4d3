"""Converts lines of the ledger, as the scripts write them, to firings."""

from urllib.parse import quote, unquote

from tradewind.scheduler.domain.firing import Firing, FiringOutcome


def firing_of(line: str) -> Firing:
    """Return the firing in a line of the ledger."""
    planned, outcome, cycle, run, run_id, at, count, last, reason = line.split(" ", 8)
    last, _, event = last.partition("@")
    return Firing(
        int(planned),
        FiringOutcome(outcome),
        int(cycle),
        int(run),
        "" if run_id == "-" else run_id,
        int(at),
        int(count),
        int(last),
        reason,
        unquote(event),
    )


def event_mark(event_id: str) -> str:
    """Return the event's id as it follows the last planned time in a line, without spaces; "" for no event."""
    return f"@{quote(event_id)}" if event_id else ""
