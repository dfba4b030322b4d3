"""Checks of a store before a server works with it: that it answers, and that it evicts nothing."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import structlog
from redis import asyncio as aioredis
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.sentinel import MasterNotFoundError
from redis.exceptions import AuthenticationError, NoPermissionError
from redis.exceptions import ConnectionError as StoreConnectionError
from redis.exceptions import TimeoutError as StoreTimeoutError

from tradewind.server.redis.client import REDIS_ERRORS, Client
from tradewind.server.redis.connections import DiskFails

CHECK_USER = "check TRADEWIND_STORE_USER and TRADEWIND_STORE_PASSWORD, or the user in TRADEWIND_STORE_URL"
"""What to do when the store refuses a user."""

CHECK_RIGHTS = "write its rule in the ACL file again, as tools/store_secrets.py does"
"""What to do when the store knows a user and refuses it a command or a key."""

_NO_MASTER = (
    "no Sentinel names a master: check that Sentinels run at TRADEWIND_STORE_URL, ask for no password, may log in to "
    "the stores, and know the name at its end"
)

_log = structlog.get_logger(__name__)


class UnsafeStore(Exception):
    """The store would discard state under memory pressure."""


async def require_safe_policy(client: Client) -> None:
    """Check that the store never evicts keys by itself.

    Raises UnsafeStore when its maxmemory-policy is not `noeviction`. A user without the right to INFO cannot check;
    that is then left to whoever runs the store. So is a node of a cluster that is away: a service starts without it.
    """
    try:
        if isinstance(client, aioredis.RedisCluster):
            await client.initialize()
            # One by one: if all were asked at once and one refused, the others' connections would be left behind.
            sections = [await _memory_of(node, client) for node in client.get_nodes()]
        else:
            sections = [await client.info("memory")]
    except NoPermissionError:
        _log.debug(
            "store_policy_unknown",
            hint="this ACL user may not call INFO; make sure that maxmemory-policy is noeviction",
        )
        return
    for section in sections:
        policy = str(section.get("maxmemory_policy", "noeviction"))
        if policy != "noeviction":
            raise UnsafeStore(
                f'the store evicts keys when memory is short (maxmemory-policy is "{policy}"): set it to "noeviction", '
                "so that no state is lost"
            )


async def _memory_of(node: ClusterNode, client: aioredis.RedisCluster) -> Mapping[str, Any]:
    try:
        section: Mapping[str, Any] = await client.info("memory", target_nodes=node)
    except (StoreConnectionError, StoreTimeoutError) as error:
        _log.warning(
            "store_policy_unknown", node=node.name, error=error, hint="make sure that maxmemory-policy is noeviction"
        )
        return {}
    return section


async def ping(client: Client) -> None:
    """Return once the store answers. Raises redis-py's exceptions and OSError when it does not."""
    with suppress(DiskFails):  # That is an answer, too.
        await client.ping()


async def require_reachable(client: Client) -> None:
    """Check that the store answers.

    Raises ConnectionError with a sentence for people when it does not, or refuses the user.
    """
    try:
        await ping(client)
    except (*REDIS_ERRORS, OSError) as error:
        if refuses_user(error):
            raise ConnectionError(why_unusable(error)) from error
        if isinstance(error, MasterNotFoundError):
            raise ConnectionError(_NO_MASTER) from error
        advice = "start it, or set TRADEWIND_STORE_URL to its address"
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            advice = "set TRADEWIND_STORE_TLS_CA to the file of its CA"
        raise ConnectionError(f"{why_unusable(error)}; {advice}") from error


def why_unusable(error: Exception) -> str:
    """Return a sentence for people about an error with which a call of the store ended."""
    if refuses_user(error):
        return f"the store refuses the user: {_sentence_of(error)}; {CHECK_USER}"
    if isinstance(error, NoPermissionError):
        return f"the store refuses its user what a service must do: {_sentence_of(error)}; {CHECK_RIGHTS}"
    return f"the store does not answer: {_sentence_of(error)}"


async def require_functions(client: Client, key: str) -> None:
    """Check that the user may load functions, and run them on `key`; what else the store refuses now is not looked at.

    Raises ConnectionError with a sentence for people when it may not.
    """
    for command in (("FUNCTION", "LOAD", ""), ("FCALL", "", 1, key)):
        try:
            # No library is empty, and no function has this name: this changes nothing.
            await client.call(key, *command)
        except NoPermissionError as error:
            raise ConnectionError(
                f"the store refuses its user the functions that it works by: {error}; give it +fcall and +function|load"
            ) from error
        except REDIS_ERRORS:
            pass


def refuses_user(error: Exception) -> bool:
    """Return whether the store answered, but does not know the user or the password; a cluster wraps that error."""
    return isinstance(error, AuthenticationError) or isinstance(error.__cause__, AuthenticationError)


def _sentence_of(error: Exception) -> str:
    """Return the message of an error without the full stop that Redis ends some with."""
    return str(error).rstrip(" .")
