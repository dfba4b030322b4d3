"""Reading flows whole, with their definitions: as large as they may be, only some are read at once."""

from collections.abc import Iterator, Sequence

_AT_ONCE = 20


def pieces(flow_ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Return the ids of flows in pieces of as many as may be read at once, in order."""
    return (flow_ids[first : first + _AT_ONCE] for first in range(0, len(flow_ids), _AT_ONCE))
