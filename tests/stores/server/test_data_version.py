"""The version of the data: stored once, checked at each start."""

import json
from dataclasses import replace

import pytest

from tests.no_writes import REFUSALS, refusing_writes
from tests.servers import RedisServer
from tradewind.server.redis.client import Client
from tradewind.server.redis.data_version import DataVersion, IncompatibleData, require_data_version

KEY = "trading_flow:{s0}:data_version"
FULL = next(reason for reason in REFUSALS if "out of memory" in reason)
VERSION, OLDEST = 5, 3
DATA = DataVersion(KEY, {"shards": 2}, {"shards": " by SHARDS"}, version=VERSION, oldest=OLDEST)


@pytest.fixture
def client(redis_server: RedisServer) -> Client:
    return redis_server.connect("node_task_manager")


async def test_first_start_stores_the_version_and_later_ones_keep_it(client: Client) -> None:
    await require_data_version(client, DATA)
    stored = await client.get(KEY)
    assert stored is not None
    assert json.loads(stored) == {"version": VERSION, "shards": 2}
    await require_data_version(client, DATA)
    assert await client.get(KEY) == stored
    assert await client.pttl(KEY) == -1


async def test_store_that_accepts_no_writes_can_be_used_once_it_has_a_version(
    client: Client, redis_server: RedisServer
) -> None:
    async with refusing_writes(redis_server, FULL):
        with pytest.raises(ConnectionError, match=r"the store accepts no writes: .* used memory > 'maxmemory'"):
            await require_data_version(client, DATA)
    await require_data_version(client, DATA)
    async with refusing_writes(redis_server, FULL):
        await require_data_version(client, DATA)


async def test_newer_version_is_refused(client: Client) -> None:
    await client.set(KEY, json.dumps({"version": VERSION + 1, "shards": 2}))
    with pytest.raises(
        IncompatibleData, match=f"have version {VERSION + 1}, written by a later release; this one reads"
    ):
        await require_data_version(client, DATA)


async def test_version_that_is_too_old_is_refused(client: Client) -> None:
    await client.set(KEY, json.dumps({"version": OLDEST - 1, "shards": 2}))
    with pytest.raises(
        IncompatibleData, match=f"have version {OLDEST - 1}, written by an earlier release; this one reads"
    ):
        await require_data_version(client, DATA)


async def test_release_that_can_read_earlier_data_keeps_earlier_releases_from_what_it_writes(client: Client) -> None:
    earlier = replace(DATA, fixed={}, version=OLDEST)
    await require_data_version(client, earlier)
    await require_data_version(client, DATA)
    assert json.loads(await client.get(KEY) or b"") == {"version": VERSION, "shards": 2}
    with pytest.raises(IncompatibleData, match=f"have version {VERSION}, written by a later release"):
        await require_data_version(client, earlier)


async def test_different_number_of_shards_is_refused(client: Client) -> None:
    await require_data_version(client, replace(DATA, fixed={"shards": 4}))
    with pytest.raises(IncompatibleData, match="have 4 shards, but this server is set to 2 by SHARDS"):
        await require_data_version(client, DATA)


@pytest.mark.parametrize("stored", ["", "[]", "{}", "soon", '{"version": null}'])
async def test_invalid_version_record_is_refused(client: Client, stored: str) -> None:
    await client.set(KEY, stored or " ")
    with pytest.raises(IncompatibleData, match="instead of a data version"):
        await require_data_version(client, DATA)


async def test_user_of_another_service_is_reported_with_the_settings_to_check(redis_server: RedisServer) -> None:
    with pytest.raises(ConnectionError, match=r"refuses its user the key .*; check TRADEWIND_STORE_USER"):
        await require_data_version(redis_server.connect("trigger"), DATA)
