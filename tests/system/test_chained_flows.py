"""A flow that runs after another has ended: a trigger listens for the end, and its receiver runs the second flow."""

import asyncio

import pytest

from tests.waiting import until
from tradewind.client import Client, CycleStatus
from tradewind.flow import Flow


@pytest.fixture(autouse=True)
def no_listener_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the scheduler from polling for listeners, so that it must be notified of them."""
    monkeypatch.setenv("TRADEWIND_SCHEDULER_LISTENERS_SECONDS", "600")


async def test_trigger_on_flow_end_runs_another_flow(client: Client) -> None:
    for flow_id in ("prices", "report"):
        flow = Flow(flow_id, "1h", overlap="allow")
        flow.node("numbers", "numbers", {"start": 0, "count": 1})
        await client.register_flow(flow_id, flow)
    await client.save_trigger("after-prices", queue="chain", on_finished="prices", statuses=["completed"])

    async def chain() -> None:
        async with client.receive_due("chain") as due_triggers:
            async for due in due_triggers:
                await client.run_flow("report", {"after": due.event}, request_id=due.event["run_id"])
                await due.ack()

    chaining = asyncio.create_task(chain())
    try:
        finished: list[str] = []

        async def second_flow_has_run() -> bool:
            # Ends are reported once the scheduler knows of a listener.
            handle = await client.run_flow("prices", wait=30)
            assert handle.record is not None
            finished.append(handle.record.run_id)
            return bool([cycle async for cycle in client.list_cycles("report", statuses=[CycleStatus.COMPLETED])])

        await until(second_flow_has_run, "the second flow has run", timeout=60)
        reports = [cycle async for cycle in client.list_cycles("report")]
        after = [report.inputs["after"] for report in reports]
        assert {event["flow_id"] for event in after} == {"prices"}
        assert {event["status"] for event in after} == {"completed"}
        assert {event["run_id"] for event in after} <= set(finished)
        assert len(after) == len({event["run_id"] for event in after})
    finally:
        chaining.cancel()
        await asyncio.gather(chaining, return_exceptions=True)
