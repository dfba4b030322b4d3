"""Which memory allocator an embedded store's server uses: jemalloc where it is installed, else that of its build."""

import functools
import os
import subprocess
import sys
from collections.abc import Mapping

JEMALLOC = "libjemalloc.so.2"
GLIBC_TUNABLES = "glibc.malloc.tcache_count=2000"
"""For glibc's allocator, which the wheel's server is built with; jemalloc ignores it. With more freed pieces at hand, a
claim from a store of 500 000 records takes half the time.

glibc keeps up to 2000 pieces of each of 64 sizes, 66 MB at most. Memory that grows by realloc takes none of them, so a
steady load reaches that size. With a count of 65535, it grew by a megabyte a second, up to 2 GB."""


def allocator() -> Mapping[str, str]:
    """Return the environment of a server: jemalloc makes a bulk of runs take nine tenths of the time."""
    return {"GLIBC_TUNABLES": GLIBC_TUNABLES, **({"LD_PRELOAD": JEMALLOC} if has_jemalloc() else {})}


@functools.cache
def has_jemalloc() -> bool:
    """Say whether Python, which becomes the server (`owned`), starts with jemalloc preloaded, and loads it."""
    if sys.platform != "linux":
        return False
    name = JEMALLOC.partition(".")[0]
    loaded = f"import sys; sys.exit({name!r} not in open('/proc/self/maps').read())"
    probe, environment = [sys.executable, "-I", "-S", "-c", loaded], {**os.environ, "LD_PRELOAD": JEMALLOC}
    ended = subprocess.run(probe, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return ended.returncode == 0
