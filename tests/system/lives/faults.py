"""What goes wrong in a life, at random."""

import random
from collections.abc import Sequence

from tests.system.lives.world import World

RATE = 0.25
"""How often something goes wrong after an operation."""
LONGEST_LOSS_S = 2
"""A store that writes to its disk every second may lose the writes of up to two."""


class Faults:
    """Each method is one kind of fault."""

    def __init__(self, draw: random.Random, world: World, lossy_stores: Sequence[str]) -> None:
        self._draw = draw
        self._world = world
        self._lossy_stores = lossy_stores
        self._kinds = [
            *(self.crash, self.freeze, self.break_connection, self.break_calls, self.set_lag, self.set_failing),
            *(self.restart_worker, self.freeze_worker, self.crash_worker),
        ]
        if lossy_stores:
            self._kinds += [self.lose_writes, self.lose_writes]

    def maybe(self) -> str | None:
        """Let something go wrong, or not; return words for it."""
        return self._draw.choice(self._kinds)() if self._draw.random() < RATE else None

    def end(self) -> None:
        """Let no further calls of stores fail or take long."""
        self._world.disturbances.fail_rate = self._world.disturbances.lag = 0

    def crash(self) -> str:
        replicas = self._draw.choice(self._world.services)
        self._world.crash(replicas)
        return f"a replica of {replicas.name} crashes"

    def freeze(self) -> str:
        replicas = self._draw.choice(self._world.services)
        seconds = self._draw.choice((1, 8, 15, 40))
        self._world.freeze(replicas, seconds)
        return f"a replica of {replicas.name} freezes for {seconds} s"

    def restart_worker(self) -> str:
        worker_id = self._draw.choice(list(self._world.workers))
        self._world.workers[worker_id].stop()
        return f"worker {worker_id} is restarted"

    def crash_worker(self) -> str:
        worker_id = self._draw.choice(list(self._world.workers))
        self._world.crash_worker(worker_id)
        return f"worker {worker_id} crashes"

    def freeze_worker(self) -> str:
        worker_id, seconds = self._draw.choice(list(self._world.workers)), self._draw.choice((1, 8, 40))
        self._world.freeze_worker(worker_id, seconds)
        return f"worker {worker_id} is cut off for {seconds} s"

    def break_connection(self) -> str:
        at = self._draw.randrange(len(self._world.channels))
        self._world.channels[at].break_off()
        return f"connection {at} breaks"

    def break_calls(self) -> str:
        replicas = self._draw.choice(self._world.services)
        replicas.break_calls()
        return f"all connections to {replicas.name} break"

    def set_lag(self) -> str:
        self._world.disturbances.lag = lag = self._draw.choice((0, 0.01, 0.3))
        return f"calls of stores take up to {lag} s"

    def set_failing(self) -> str:
        self._world.disturbances.fail_rate = rate = self._draw.choice((0, 0, 0.02, 0.2))
        return f"of the calls of stores, {rate:.0%} fail"

    def lose_writes(self) -> str:
        seconds = self._draw.random() * LONGEST_LOSS_S
        service = self._draw.choice(self._lossy_stores)
        self._world.lose_writes(seconds, service)
        return f"the store {service and f'of {service} '}will lose what is written in the next {seconds:.3f} s"
