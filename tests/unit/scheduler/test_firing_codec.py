"""Lines of the ledger of a flow's planned times."""

import pytest

from tradewind.scheduler.domain.firing import Firing, FiringOutcome
from tradewind.scheduler.stores.redis.firing_codec import event_mark, firing_of


@pytest.mark.parametrize("event_id", ["", "quote-7", "a b@c ü\n\x1f%"])
def test_ledger_line_holds_the_event_id(event_id: str) -> None:
    firing = Firing(5, FiringOutcome.QUEUED, -1, 0, "", 6, 1, 5, "cycle 1 was running @ noon", event_id)
    line = f"5 queued -1 0 - 6 1 5{event_mark(event_id)} cycle 1 was running @ noon"
    assert firing_of(line) == firing
