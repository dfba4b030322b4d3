"""All services in one process, with a store of their own: what `tradewind up` runs."""

import tradewind.grpc_engine  # noqa: F401 - before grpc
from tradewind.standalone.stack import Standalone, StandaloneError

__all__ = ["Standalone", "StandaloneError"]
