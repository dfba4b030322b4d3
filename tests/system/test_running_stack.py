"""The stack that users test their flows with."""

import pytest

from tradewind.flow import Flow
from tradewind.testing import running_stack
from tradewind.worker import Context, node


@node("count")
async def count(ctx: Context) -> int:
    return int(await ctx.flow_memory.update("count", lambda seen: seen + 1, 0))


async def test_it_touches_nothing_that_the_environment_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for server in ("SCHEDULER", "REGISTRY", "NODE_TASK_MANAGER", "TRIGGER", "ACCESS"):
        monkeypatch.setenv(f"TRADEWIND_{server}_ADDRESS", "localhost:1")
    monkeypatch.setenv("TRADEWIND_STORE_URL", "redis://localhost:1")
    monkeypatch.setenv("TRADEWIND_HOST", "192.0.2.1")
    monkeypatch.setenv("TRADEWIND_AUTH", "true")
    monkeypatch.setenv("TRADEWIND_QUOTAS", "all=10")
    monkeypatch.setenv("TRADEWIND_TLS_CA", "nowhere.pem")
    flow = Flow("counting", "1h")
    flow.node("count", count)
    async with running_stack([count]) as client:
        await client.register_flow("counting", flow)
        assert await (await client.run_flow("counting")).result(30) == {"count": {"output": 1}}
