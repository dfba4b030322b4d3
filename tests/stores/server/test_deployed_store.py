"""The store of k8s/ with its own configuration and users: it starts, and each user may do what it must and no more."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from redis.exceptions import NoPermissionError, RedisError

from tests.house.manifests import SERVICES
from tests.house.project import ROOT
from tests.servers import BINARIES
from tradewind.server.redis.checks import require_safe_policy
from tradewind.server.redis.client import connect
from tradewind.server.redis.embedded import EmbeddedStore

OVERRIDDEN = ("bind", "port", "dir", "aclfile")
"""Settings that differ from those in a container."""


@pytest_asyncio.fixture(params=BINARIES, ids=lambda binary: "system" if binary else "embedded")
async def url(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a store with the redis.conf of k8s/ and the users of the overlay dev."""
    lines = (ROOT / "k8s/base/redis/redis.conf").read_text(encoding="utf-8").splitlines()
    options: list[str] = []
    for line in lines:
        name, *values = line.split()[:1] or [""], *line.split()[1:]
        if line and not line.startswith("#") and name[0] not in OVERRIDDEN:
            options += [f"--{name[0]}", *values]
    store = EmbeddedStore(tmp_path / "store", binary=request.param, options=options)
    await store.start()
    admin = connect(store.url_for())
    (tmp_path / "store" / "users.acl").write_text((ROOT / "k8s/overlays/dev/users.acl").read_text(encoding="utf-8"))
    await admin.execute_command("ACL", "LOAD")
    await admin.end()
    yield f"redis://127.0.0.1:{store.port}"
    await store.stop()


async def test_each_user_of_the_deployed_store_has_exactly_its_rights(url: str) -> None:
    admin = connect(url, user="admin", password="dev-admin")
    await require_safe_policy(admin)
    settings = await admin.execute_command("CONFIG", "GET", "*")
    config = {key.decode(): value.decode() for key, value in zip(settings[::2], settings[1::2], strict=True)}
    assert (config["appendonly"], config["appendfsync"], config["save"]) == ("yes", "everysec", "300 1000")
    assert config["shutdown-on-sigterm"] == "nosave", "whoever moves the pod does not wait for a snapshot"
    assert {config[f"lazyfree-lazy-{what}"] for what in ("expire", "server-del")} == {"yes"}
    await admin.end()
    for _, _, user in SERVICES.values():
        client = connect(url, user=user.name, password=f"dev-{user.name}")
        mine = user.patterns[0].replace("*:", "trading_flow:", 1).removesuffix("*")
        assert await client.set(f"{mine}x", "1")
        with pytest.raises(NoPermissionError):
            await client.get("trading_flow:{nobody}:x")
        with pytest.raises(NoPermissionError):
            await client.execute_command("FLUSHALL")
        await client.end()
    probe = connect(url, user="probe", password="none")
    assert await probe.ping()
    for command in (("GET", "x"), ("INFO",), ("SYNC",)):
        with pytest.raises(NoPermissionError):
            await probe.execute_command(*command)
    await probe.end()
    nobody = connect(url)
    with pytest.raises(RedisError):
        await nobody.ping()
    await nobody.end()
