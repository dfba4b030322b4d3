"""The store's master dies, and the replica that takes its place lacks a while of work."""

from pathlib import Path

from tests.system.replicas.cluster import Cluster
from tests.system.replicas.failover import FailoverStore
from tests.system.replicas.test_chaos import nothing_is_held
from tests.system.replicas.test_replicas_die import FLOWS, begin, every_cycle_once, more_done, running


async def test_what_a_lossy_failover_lost_is_made_up_for(tmp_path: Path) -> None:
    """Cycles that had ended before stay as they were.

    All others are on record once, under the numbers that they had; what ran of them in vain runs again, under the same
    idempotency keys.
    """
    store = FailoverStore(tmp_path, down_after_s=3)
    cluster = Cluster(tmp_path, schedulers=2, node_task_managers=2, workers=2, store=store)
    async with running(cluster), cluster.client() as client:
        await begin(client)
        await more_done(cluster)
        before = {
            f"{name}:{cycle.cycle}:0:{node}"
            for name in FLOWS
            async for cycle in client.list_cycles(name)
            if cycle.status == "completed"
            for node in ("first", "second")
        }
        await store.cut_off_replica()
        await more_done(cluster)
        await store.kill_master()
        await more_done(cluster)
        assert await store.last_write_is_lost()
        ran = await every_cycle_once(client)
        done = cluster.noted("done")
        assert set(done) == ran
        assert before
        assert {key for key in before if done[key] != 1} == set()
        await nothing_is_held(cluster)
        assert (await client.run_doctor()).findings == ()
