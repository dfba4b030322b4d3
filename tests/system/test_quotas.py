"""Quotas and rate limits of a whole stack."""

from pathlib import Path

import pytest

from tests.system import flows
from tests.system.processes import Shell
from tests.zones import zone_far_from_midnight
from tradewind.client import Client, Exhausted, InvalidInput, NotFound, Role
from tradewind.standalone import Standalone


async def test_daily_quota_counts_only_accepted_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It covers unary calls, streams and bulk calls, is shown on the command line, and refuses when used up."""
    monkeypatch.setenv("TRADEWIND_QUOTAS", "RunFlow=3")
    async with (
        Standalone(data=tmp_path / "data", port=0, auth=True) as stack,
        Client(stack.address, token=stack.new_admin_token) as admin,
    ):
        token = (await admin.create_token("ann", role=Role.USER)).token
        zone = zone_far_from_midnight()
        assert (await admin.set_user("ann", Role.USER, time_zone=zone)).time_zone == zone
        async with (
            Client(stack.address, token=token) as ann,
            Client(stack.address, token=token, run_stream=False) as unary,
        ):
            await ann.register_flow("sums", flows.sums(overlap="allow"))
            with pytest.raises(InvalidInput, match="send at most 3 together"):
                await ann.run_flows(["sums"] * 4)
            for client in (ann, unary):
                with pytest.raises(NotFound):
                    await client.run_flow("unheard-of")
            (quota_before,) = [each async for each in ann.list_quotas()]
            assert (quota_before.used, quota_before.most) == (0, 3)
            for client in (ann, unary):
                await client.run_flow("sums")
            with pytest.raises(Exhausted):
                await ann.run_flows(["sums"] * 2)
            await ann.run_flows(["sums"])
            (used,) = [each async for each in admin.list_quotas("ann")]
            assert used.used == 3
            with pytest.raises(Exhausted) as refusal:
                await ann.run_flow("sums")
            assert refusal.value.reason == "QUOTA_EXCEEDED"
            assert 0 < refusal.value.retry_after <= 25 * 3600
        monkeypatch.setenv("TRADEWIND_TOKEN", token)
        shell = Shell(stack.address)
        (quota,) = (await shell.json("whoami"))["quotas"]
        assert (quota["endpoint"], quota["most"], quota["time_zone"]) == ("RunFlow", 3, zone)
        assert zone in await shell("whoami")
        assert "RunFlow" in await shell("user", "quotas", "ann")


async def test_rate_limit_covers_streamed_unary_and_bulk_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRADEWIND_RATE_LIMITS", "RunFlow=3/d")
    async with (
        Standalone(data=tmp_path / "data", port=0, auth=True) as stack,
        Client(stack.address, token=stack.new_admin_token) as admin,
    ):
        token = (await admin.create_token("ann", role=Role.USER)).token
        async with Client(stack.address, token=token) as ann:
            await ann.register_flow("sums", flows.sums(overlap="allow"))
            with pytest.raises(InvalidInput, match="send at most 3 together"):
                await ann.run_flows(["sums"] * 4)
            await ann.run_flow("sums")
            with pytest.raises(Exhausted):
                await ann.run_flows(["sums"] * 3)
            await ann.run_flows(["sums"] * 2)
            with pytest.raises(Exhausted) as refusal:
                await ann.run_flow("sums")
            assert refusal.value.reason == "RATE_LIMITED"
            assert 86_000 < refusal.value.retry_after <= 86_400
            async with Client(stack.address, token=token, run_stream=False) as unary:
                with pytest.raises(Exhausted):
                    await unary.run_flow("sums")
