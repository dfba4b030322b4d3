"""The names that a shell offers on Tab: those that the servers know now, or none if they do not answer in time."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import suppress
from typing import TYPE_CHECKING

import typer

from tradewind.cli.session import Session

if TYPE_CHECKING:
    from tradewind.client import Client

    Names = Callable[[Client, typer.Context], AsyncIterator[str]]

PATIENCE = 2.0
"""Seconds that somebody who has pressed Tab waits for servers at most."""


_BREAKS = frozenset("=:")


def join_words(environment: MutableMapping[str, str]) -> None:
    """Join what bash has split at "=" and ":", as in --address=localhost:7700, where it asks for completions."""
    if "COMP_WORDS" not in environment:
        return
    # What is after the cursor has no part in it.
    words = environment["COMP_WORDS"].split("\n")[: int(environment["COMP_CWORD"]) + 1]
    joined, at_break = list[str](), False
    for word in words:
        is_break = word != "" and _BREAKS.issuperset(word)
        if joined and (at_break or is_break):
            joined[-1] += word
        else:
            joined.append(word)
        at_break = is_break
    environment.update(COMP_WORDS="\n".join(joined), COMP_CWORD=str(len(joined) - 1))


def _offered(names: "Names") -> Callable[[typer.Context, str], list[str]]:
    """Make what typer asks for completions of a coroutine that yields names, going by what is typed already."""

    def offer(context: typer.Context, incomplete: str) -> list[str]:
        async def find() -> list[str]:
            client = Session.of(context.find_root().params).client()
            async with asyncio.timeout(PATIENCE), client:
                # Shells expand what they are offered, so a name that needs quotes could run as code.
                return [name async for name in names(client, context) if shlex.quote(name) == name]

        # An error would be printed over the line that somebody is typing.
        with suppress(Exception):
            return asyncio.run(find())
        return []

    return offer


@_offered
async def flows(client: "Client", context: typer.Context) -> AsyncIterator[str]:
    """Offer the names of flows."""
    async for flow in client.list_flows():
        yield flow.flow_id


@_offered
async def nodes(client: "Client", context: typer.Context) -> AsyncIterator[str]:
    """Offer the nodes of the flow that is typed already."""
    typed = context.params
    # While the value of an option is missing, the arguments are not assigned.
    flow_id = typed.get("flow") or typed.get("name") or context.args[0]
    for node in (await client.get_flow(flow_id)).flow.config["nodes"]:
        yield node["id"]


@_offered
async def node_types(client: "Client", context: typer.Context) -> AsyncIterator[str]:
    """Offer the node types that workers declare."""
    async for node_type in client.list_node_types():
        yield node_type.type


@_offered
async def workers(client: "Client", context: typer.Context) -> AsyncIterator[str]:
    """Offer the ids of live workers."""
    async for worker in client.list_workers():
        yield worker.worker_id


@_offered
async def triggers(client: "Client", context: typer.Context) -> AsyncIterator[str]:
    """Offer the triggers of the queue that is typed already."""
    async for trigger in client.list_triggers(context.params["queue"]):
        yield trigger.trigger_id
