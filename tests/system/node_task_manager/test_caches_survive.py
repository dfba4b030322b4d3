"""A worker that works out a result for others is killed: another worker then does so, once."""

from tests.system.node_task_manager.stack import PATIENCE_S, Stack
from tests.system.node_task_manager.test_batches_survive import client_of
from tests.waiting import until
from tradewind.flow import Cache

ONE_RESULT = Cache("screening")


async def test_shared_result_of_killed_worker_is_computed_once_by_another(stack: Stack) -> None:
    _, address = await stack.node_task_manager()
    killed = await stack.worker("killed", address)
    gate = {"gate": str(stack.home / "never")}
    async with client_of(address) as client:
        first = await client.submit_task("gated", gate, cache=ONE_RESULT)
        await until(lambda: stack.recorded("begun"), "the first one runs")
        others = [await client.submit_task("gated", gate, cache=ONE_RESULT) for _ in range(5)]

        async def all_wait() -> bool:
            reasons = [(await handle.get()).reason for handle in others]
            return all("does the same work" in reason for reason in reasons)

        await until(all_wait, "the others wait for it")
        await stack.worker("heir", address)
        await killed.kill()
        ended = [await handle.wait(PATIENCE_S) for handle in (first, *others)]
        usage = (await client.cache_statistics("screening"))[0]
    assert {task.status for task in ended} == {"completed"}
    ran = [task for task in ended if not task.cached_in]
    assert [(task.worker_id, task.failures) for task in ran] == [("heir", 0)]
    assert {str(task.outputs) for task in ended} == {str(ran[0].outputs)}
    assert sum(stack.recorded("done").values()) == 1
    assert usage.hits == 5
