"""The same random operations run on memory and Redis, which must always answer alike."""

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from tests.servers import RedisServer, assert_no_leaked_keys
from tests.stores.machines import TwinStores, run_histories, together
from tests.stores.registry.bench import LIFETIMES, Bench, a_type, a_worker, memory_bench, redis_bench
from tradewind.registry.domain.limits import Limits
from tradewind.registry.domain.worker import Worker

LIMITS = Limits(workers=2, node_types=4, replaced_incarnations=2, records_per_script=3)

TYPES = ["average", "report", "b.c", "d-e", "f"]
# Few names, so that the same worker comes up repeatedly.
ids = st.sampled_from(["a", "a", "a", "a.b", "c-1"])
types = st.lists(st.sampled_from(TYPES), unique=True, max_size=4)
incarnations = st.sampled_from(["i1", "i1", "i2", "i3", "i4"])
workers = st.builds(
    lambda worker_id, names, incarnation, capacity, running, api_url: replace(
        a_worker(worker_id, *names), incarnation=incarnation, capacity=capacity, running=running, api_url=api_url
    ),
    ids,
    types,
    incarnations,
    st.sampled_from([1, 3, 10]),
    st.integers(0, 4),
    st.sampled_from(["", "host:9000"]),
)
spans = st.sampled_from(
    [
        1,
        20_000,
        LIFETIMES.time_to_live - 1,
        LIFETIMES.time_to_live,
        LIFETIMES.retention - 1,
        LIFETIMES.retention,
        LIFETIMES.retention + LIFETIMES.time_to_live,
    ]
)


class Twins(TwinStores[Bench]):
    """Memory and one Redis under one clock."""

    def __init__(self, server: RedisServer) -> None:
        super().__init__(server)
        self.memory, self.redis = memory_bench(self.clock, LIMITS), redis_bench(server, self.clock, LIMITS)

    def teardown(self) -> None:
        try:
            self.clock.advance(LIFETIMES.time_to_live + LIFETIMES.retention)
            while self.run(self.redis.sweeper.sweep()):
                pass
        finally:
            super().teardown()

    async def at_the_end(self) -> None:
        """Check that sweeps leave nothing of workers and node types that are long gone, but keys that expire."""
        await assert_no_leaked_keys(self.server)

    @rule(worker=workers, description=st.sampled_from(["", "ü"]))
    def register(self, worker: Worker, description: str) -> None:
        declared = [a_type(name, description) for name in worker.node_types]
        self.both(lambda bench: bench.workers.register(worker, declared))

    @rule(worker=workers, draining=st.booleans())
    def heartbeat(self, worker: Worker, draining: bool) -> None:
        self.both(lambda bench: bench.workers.heartbeat(worker, draining=draining))

    @rule(worker_id=ids)
    def drain(self, worker_id: str) -> None:
        self.both(lambda bench: bench.workers.drain(worker_id))

    @rule(worker_id=ids, incarnation=st.one_of(st.just(""), incarnations))
    def deregister(self, worker_id: str, incarnation: str) -> None:
        self.both(lambda bench: bench.workers.deregister(worker_id, incarnation))

    @rule(span=spans)
    def advance(self, span: int) -> None:
        self.clock.advance(span)

    @rule()
    def sweep(self) -> None:
        # How many a sweep takes at a time is up to each store: Redis takes a few.
        for bench in (self.memory, self.redis):
            self.run(bench.sweeper.sweep())

    @rule(after=st.one_of(st.just(""), ids), limit=st.integers(1, 3), flags=st.tuples(st.booleans(), st.booleans()))
    def page(self, after: str, limit: int, flags: tuple[bool, bool]) -> None:
        offline, called = flags
        self.both(lambda bench: bench.workers.list(after, limit, include_offline=offline, only_called=called))
        self.both(lambda bench: bench.node_types.list(after, limit))

    @rule(name=st.sampled_from(TYPES), limit=st.integers(1, 3))
    def available(self, name: str, limit: int) -> None:
        self.both(lambda bench: bench.workers.available(name, limit))

    @rule(worker_id=ids, names=types)
    def find(self, worker_id: str, names: list[str]) -> None:
        self.both(lambda bench: bench.workers.find(worker_id))
        self.both(lambda bench: bench.node_types.find(names))

    @invariant()
    def they_hold_the_same(self) -> None:
        self.both(
            lambda bench: together(bench.workers.list("", 100, include_offline=True), bench.node_types.list("", 100))
        )


def test_memory_and_redis_answer_alike(running_redis: RedisServer) -> None:
    run_histories(Twins, running_redis, 40, steps=60)
