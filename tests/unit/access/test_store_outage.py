"""A gate in the process of the access service during a store outage."""

import msgspec
import pytest
from redis.exceptions import BusyLoadingError, ConnectionError, ReadOnlyError, RedisClusterException, TimeoutError

from tests.gate_calls import Owners, call
from tradewind.access.stores.keys import Keys
from tradewind.access.stores.redis import RedisAccess
from tradewind.access.use_cases.daily_quotas import DailyQuotas
from tradewind.access.use_cases.listeners import Listeners
from tradewind.access.use_cases.local_authority import LocalAuthority
from tradewind.api.scheduler.v1.scheduler_service_pb2 import GetFlowRequest, RunFlowRequest
from tradewind.server.access.gate import Gate
from tradewind.server.access.tokens import digest_of, new_token
from tradewind.server.clock import ManualClock
from tradewind.server.faults import Unavailable
from tradewind.server.rates import Rate


class Client:
    """A client of a store in which every token is ann's, until the store is away."""

    password = ""

    def __init__(self, away: Exception | None = None) -> None:
        self.away = away

    async def fcall(self, *_arguments: object) -> bytes:
        if self.away is not None:
            raise self.away
        return msgspec.msgpack.encode(["", "ann", "user"])

    async def hmget(self, *_arguments: object) -> list[bytes | None]:
        raise self.away or AssertionError

    async def hgetall(self, *_arguments: object) -> dict[bytes, bytes]:
        raise self.away or AssertionError


def stores(client: Client) -> RedisAccess:
    return RedisAccess(client, Keys("trading_flow"), ManualClock())  # type: ignore[arg-type]


def authority(client: Client) -> LocalAuthority:
    access = stores(client)
    quotas = DailyQuotas(access.users, access.quotas, ManualClock(), {})
    return LocalAuthority(access, Listeners(access.changes), quotas)


_UNREACHABLE = "the store cannot be reached at the moment"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionError("host x refused"), _UNREACHABLE),
        (TimeoutError("slow"), _UNREACHABLE),
        (BusyLoadingError("loading"), _UNREACHABLE),
        (ReadOnlyError("a replica"), "the store is read-only and accepts no writes"),
        (RedisClusterException("no node"), _UNREACHABLE),
    ],
)
async def test_store_errors_are_reported_as_unavailable(error: Exception, message: str) -> None:
    away, quotas = authority(Client(error)), stores(Client(error)).quotas
    for ask in (
        lambda: away.authorize(digest_of(new_token("ann")) or ""),
        lambda: away.admit("ann", "GetFlow", Rate.parse("1/s"), 1),
        lambda: away.reserve("ann", "GetFlow", 1, 1),
        lambda: away.refund("ann", "GetFlow", "2026-03-29", 1),
        lambda: quotas.used("ann", "2026-03-29"),
    ):
        with pytest.raises(Unavailable, match=message) as refusal:
            await ask()
        assert (refusal.value.reason, refusal.value.retry_after_s) == ("STORE_UNAVAILABLE", 1.0)


async def test_known_users_can_still_read_during_a_store_outage() -> None:
    client = Client()
    gate = Gate(authority(client), cache_s=0, owner_lookups={"tradewind.api.scheduler.v1.SchedulerService": Owners()})
    token = new_token("ann")
    await call(gate, "GetFlow", GetFlowRequest(flow_id="ann-1"), token)
    client.away = ConnectionError("host x refused")
    identity, _ = await call(gate, "GetFlow", GetFlowRequest(flow_id="ann-1"), token)
    assert identity is not None
    assert identity.user_id == "ann"
    with pytest.raises(Unavailable):
        await call(gate, "RunFlow", RunFlowRequest(flow_id="ann-1"), token)
