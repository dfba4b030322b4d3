"""Imported before grpc, this chooses how grpc's core waits for events in this process.

Since 1.80 the core hands each event of a Python process to a thread of its own first. A message there and back took
250 us that way and 145 us without, with a third less CPU (grpcio 1.85.1, two cores). Whoever sets GRPC_EXPERIMENTS has
decided. For versions that this was not measured with nothing is chosen: the core complains of names it does not know.
"""

import os
from importlib.metadata import version

if version("grpcio").startswith("1.85."):
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
