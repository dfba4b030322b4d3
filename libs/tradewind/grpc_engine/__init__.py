"""When imported before grpc, chooses what grpc's core does on events, names, forks, logs and data in flight.

Since 1.80 the core first hands each event of a Python process to a thread of its own. A round trip took 250 us that way
and 145 us without, with a third less CPU (grpcio 1.85.1, two cores). GRPC_EXPERIMENTS overrides this choice. Nothing is
chosen for versions without measurements: the core complains about unknown names.

The system looks up names. The core's own resolver keeps sockets, which a forked process inherits: while such a process
lived, for example one of `multiprocessing`, the process that had looked up localhost crashed at its next call.
GRPC_DNS_RESOLVER overrides this choice.

The core leaves forks alone. Otherwise its handlers end its threads and start them again around each fork, and while
calls are under way they hang in one of tens to thousands of forks: in the new process, for which the other then waits.
uvloop forks for each subprocess. GRPC_ENABLE_FORK_SUPPORT overrides this choice.

The core logs only errors. Otherwise each connection that its server gives up, such as that of a worker that was frozen,
puts a line of the core's own among the logs. GRPC_VERBOSITY overrides this choice.
"""

import os
from importlib.metadata import version

if version("grpcio").startswith("1.85."):
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener")
os.environ.setdefault("GRPC_DNS_RESOLVER", "native")
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

FIXED_WINDOW = (("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 256 * 1024))
"""Options of every channel and server: a receiver allows 256 KiB in flight on a stream, or a whole message.

By default, the core measures how much a connection could take, with a ping for whatever arrives. With the answers to
these pings and their timers, an occasional call costs twice the CPU on both sides."""

CONNECT_WITHIN_MS = 4_000
"""How long services and workers try to connect before they start over. A deadline below 3 s makes the core's lists of
timers diverge for good: it then checks them up to four times a second instead of once."""
