"""Building, reading and drawing flows.

    flow = Flow("momentum", "1s")
    feed = flow.node("feed", "price_feed")
    fast = flow.node("fast", "moving_average", {"window": 3})
    feed["prices"] >> fast["prices"]

The server checks what a definition means, all at once; here, only a definition that is not a flow at all is an error.
"""

from tradewind.flow.builder import Flow
from tradewind.flow.cache import Cache
from tradewind.flow.errors import FlowError, FlowFileError
from tradewind.flow.node import Handle, Node
from tradewind.flow.reading import parse_flow, read_flow
from tradewind.flow.retry import Retry
from tradewind.flow.spec import spec_of, weather_of
from tradewind.flow.timeouts import Timeouts

__all__ = [
    "Cache",
    "Flow",
    "FlowError",
    "FlowFileError",
    "Handle",
    "Node",
    "Retry",
    "Timeouts",
    "parse_flow",
    "read_flow",
    "spec_of",
    "weather_of",
]
