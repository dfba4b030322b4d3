"""All services in one process, with a store of their own: what `tradewind up` runs."""

from typing import TYPE_CHECKING, Any

import tradewind.grpc_engine  # noqa: F401 - before grpc

if TYPE_CHECKING:
    from tradewind.standalone.stack import Standalone, StandaloneError

__all__ = ["Standalone", "StandaloneError"]


def __getattr__(name: str) -> Any:
    # Not before it is asked for: `python -m tradewind.standalone` runs this file before it can heed a signal.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tradewind.standalone import stack

    return getattr(stack, name)
