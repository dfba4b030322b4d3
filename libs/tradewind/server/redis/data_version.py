"""The version of the data in the store, written at the first start; data that this release cannot use are refused."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from redis.exceptions import NoPermissionError

from tradewind.server.redis.checks import CHECK_USER, UnsafeStore, why_unusable
from tradewind.server.redis.client import REDIS_ERRORS, Client
from tradewind.server.redis.connections import WRITE_REFUSALS


@dataclass(frozen=True, slots=True)
class DataVersion:
    """Where a service notes its version, and `fixed`: numbers that never change once there is data.

    `hints` says how to set a number, by its name. `version` is raised whenever the previous release can no longer read
    what the service keeps, `oldest` whenever the service can no longer read what the previous release kept.
    """

    key: str
    fixed: Mapping[str, int] = field(default_factory=dict)
    hints: Mapping[str, str] = field(default_factory=dict)
    version: int = 1
    oldest: int = 1

    @property
    def text(self) -> str:
        """The value at the key, once written."""
        return json.dumps({"version": self.version, **self.fixed})


class IncompatibleData(UnsafeStore):
    """This release does not work with the data in the store."""


async def require_data_version(client: Client, data: DataVersion) -> None:
    """Check the version that is there, and note the one of this release if that is later or there is none.

    Raises IncompatibleData when the version is too late or too early, or `fixed` numbers differ; ConnectionError when
    the store fails, refuses the user, or accepts no writes before it has this version.
    """
    try:
        stored = await client.get(data.key)
        if stored is None:
            await client.set(data.key, data.text, nx=True)
            stored = await client.get(data.key)
        found = _checked(stored or data.text, data)
        if found["version"] < data.version:
            # From now on there may be what earlier releases cannot read.
            await client.set(data.key, json.dumps({**found, **data.fixed, "version": data.version}))
    except NoPermissionError as error:
        raise ConnectionError(f"the store refuses its user the key {data.key}: {error}; {CHECK_USER}") from error
    except WRITE_REFUSALS as error:
        raise ConnectionError(f"the store accepts no writes: {error}") from error
    except REDIS_ERRORS as error:
        raise ConnectionError(why_unusable(error)) from error


def _checked(stored: bytes | str, data: DataVersion) -> dict[str, int]:
    """Return the version and the numbers in the store. Raises IncompatibleData when this release cannot use them."""
    try:
        found: dict[str, int] = json.loads(stored)
        version = int(found["version"])
    except (ValueError, TypeError, KeyError):
        raise IncompatibleData(f"the key {data.key} holds {stored!r:.80} instead of a data version") from None
    if version > data.version:
        raise IncompatibleData(
            f"the data in the store have version {version}, written by a later release; this one reads versions up "
            f"to {data.version}: start that release, or restore a backup from before the upgrade"
        )
    if version < data.oldest:
        raise IncompatibleData(
            f"the data in the store have version {version}, written by an earlier release; this one reads versions "
            f"from {data.oldest} on: let that release finish its work, then start this one over an empty store (with "
            "`tradewind up`, another directory: --data)"
        )
    for name, value in data.fixed.items():
        if found.get(name, value) != value:
            raise IncompatibleData(
                f"the data in the store have {found[name]} {name}, but this server is set to {value}"
                f"{data.hints.get(name, '')}: the number cannot change once there are data"
            )
    return {**found, "version": version}
