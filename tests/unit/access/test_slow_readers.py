"""A server that does not read changes costs the access service a bounded amount, and misses nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

from tradewind.access.rpc import handlers
from tradewind.access.rpc.handlers import AccessHandlers
from tradewind.access.use_cases import Listeners
from tradewind.api.access.v1 import access_service_pb2 as pb2
from tradewind.server.streams import OpenStreams


class Changes:
    """Lets a test report changes."""

    tell: Callable[[str], None]

    async def subscribe(self, changed: Callable[[str], None], _resync: Callable[[], None]) -> Callable[[], None]:
        self.tell = changed
        return lambda: None


async def test_of_too_many_changes_it_is_told_that_anybody_may_have_changed(monkeypatch: Any) -> None:
    monkeypatch.setattr(handlers, "_MOST_CHANGED", 3)
    changes = Changes()
    listeners = Listeners(changes)
    await listeners.start()
    nothing: Any = None
    served = AccessHandlers(nothing, nothing, nothing, nothing, listeners, OpenStreams(), nothing)
    told = served.WatchChanges(pb2.WatchChangesRequest(), nothing)

    async def next_told(*changed: str) -> tuple[list[str], bool]:
        for each in changed:
            changes.tell(each)
        response = await asyncio.wait_for(anext(told), 60)
        return list(response.user_ids), response.all

    assert await next_told() == ([], True)
    assert await next_told("ann", "bob", "ann") == (["ann", "bob"], False)
    assert await next_told("ann", "bob", "cleo", "dan", "eve") == (["eve"], True)
    assert await next_told("ann") == (["ann"], False)
