"""Imported before grpc, this chooses how grpc's core waits for events and looks up names in this process, and how much
it has under way.

Since 1.80 the core hands each event of a Python process to a thread of its own first. A message there and back took
250 us that way and 145 us without, with a third less CPU (grpcio 1.85.1, two cores). Whoever sets GRPC_EXPERIMENTS has
decided. For versions that this was not measured with nothing is chosen: the core complains of names it does not know.

Names are looked up by the system. The core's own resolver keeps sockets, which a forked process has too: as long as one
lived, as of `multiprocessing`, the process that had looked up localhost crashed at its next call. Whoever sets
GRPC_DNS_RESOLVER has decided.
"""

import os
from importlib.metadata import version

if version("grpcio").startswith("1.85."):
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
os.environ.setdefault("GRPC_DNS_RESOLVER", "native")

FIXED_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 256 * 1024))
"""Options of every channel and server: whoever receives lets a stream have 256 KiB under way, or a whole message.

By itself the core measures how much a connection could take, by a ping for whatever arrives. With these, an answer and
its timers, a call now and then costs twice the CPU on both sides."""

CONNECT_WITHIN_MS = 4_000
"""For how long services and workers try to connect, before they begin anew. A deadline of less than 3 s that the core
keeps sets its lists of timers apart for good: it then looks at them up to four times a second instead of once."""
