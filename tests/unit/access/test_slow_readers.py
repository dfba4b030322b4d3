"""A server that does not read changes costs the access service a bounded amount, and misses nothing."""

import asyncio
from collections.abc import Callable
from typing import Any

from tradewind.access.rpc import handlers
from tradewind.access.rpc.handlers import AccessHandlers
from tradewind.access.use_cases.listeners import Listeners
from tradewind.api.access.v1 import access_service_pb2 as pb2
from tradewind.server.streams import OpenStreams


class Changes:
    """Lets a test report changes."""

    publish: Callable[[str], None]

    async def subscribe(self, on_change: Callable[[str], None], _on_gap: Callable[[], None]) -> Callable[[], None]:
        self.publish = on_change
        return lambda: None


async def test_too_many_pending_changes_are_reported_as_a_change_of_all_users(monkeypatch: Any) -> None:
    monkeypatch.setattr(handlers, "_MAX_CHANGED_USERS", 3)
    changes = Changes()
    listeners = Listeners(changes)
    await listeners.start()
    nothing: Any = None
    served = AccessHandlers(nothing, nothing, nothing, nothing, listeners, OpenStreams(), nothing)
    stream = served.WatchChanges(pb2.WatchChangesRequest(), nothing)

    async def next_response(*changed: str) -> tuple[list[str], bool]:
        for each in changed:
            changes.publish(each)
        response = await asyncio.wait_for(anext(stream), 60)
        return list(response.user_ids), response.all

    assert await next_response() == ([], True)
    assert await next_response("ann", "bob", "ann") == (["ann", "bob"], False)
    assert await next_response("ann", "bob", "cleo", "dan", "eve") == (["eve"], True)
    assert await next_response("ann") == (["ann"], False)
