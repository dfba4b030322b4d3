"""Which version the data in the store have, written at the first start; later and other ones are refused."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from tradewind.server.redis.client import Client, UnsafeStore


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Where a service notes its version, and `fixed`: numbers that never change once there is data.

    `hints` says by the name of such a number how to set it. `version` is raised whenever what the service keeps can no
    longer be read by the release before, `oldest` whenever it can no longer read what that kept.
    """

    key: str
    fixed: Mapping[str, int] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)
    version: int = 1
    oldest: int = 1

    @property
    def text(self) -> str:
        """What stands at the key, once it was written."""
        return json.dumps({"version": self.version, **self.fixed})


class OtherData(UnsafeStore):
    """The data in the store are not those that this release works with."""


async def require_data_version(client: Client, data: DataVersion) -> None:
    """Note the version where there is none yet, and check the one that is there.

    Raises OtherData when it is a later one or too early a one, or the data are divided otherwise; ConnectionError when
    the store fails.
    """
    try:
        await client.set(data.key, data.text, nx=True)
        noted = await client.get(data.key)
    except RedisError as error:
        raise ConnectionError(f"the store does not answer: {error}") from error
    try:
        found = json.loads(noted or data.text)
        version = int(found["version"])
    except (ValueError, TypeError, KeyError):
        raise OtherData(f'the key {data.key} holds no version of the data, but "{noted!r:.80}"') from None
    if version > data.version:
        raise OtherData(
            f"the data in the store have version {version}, written by a later release; this one knows version "
            f"{data.version}: start that release, or restore a backup from before the upgrade"
        )
    if version < data.oldest:
        raise OtherData(
            f"the data in the store have version {version}, written by an earlier release; this one reads version "
            f"{data.oldest} on: let that release end what runs, then start this one over an empty store "
            "(of `tradewind up`, another directory: --data)"
        )
    for name, number in data.fixed.items():
        if found.get(name, number) != number:
            raise OtherData(
                f"the data in the store have {found[name]} {name}, this server is set to {number}"
                f"{data.hints.get(name, '')}: the number is fixed once there are data"
            )
