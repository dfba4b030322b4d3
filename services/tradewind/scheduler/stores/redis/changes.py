"""Changes to runs, as the scripts publish them."""

from collections.abc import Callable, Sequence

import msgspec
import structlog

from tradewind.scheduler.domain.chain_state import ChainState
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.changes import RunChange
from tradewind.scheduler.stores.keys import Keys
from tradewind.scheduler.stores.redis.run_codec import as_mapping, state_after, state_of
from tradewind.server.redis.subscriber import Subscriber

_log = structlog.get_logger(__name__)


class _Change(msgspec.Struct, array_like=True):
    flow_id: str
    cycle: int
    run: int
    version: int
    fields: list[str | int]
    status: str = ""
    end_time: int = 0


_DECODER = msgspec.msgpack.Decoder(list[_Change])


class RedisChanges:
    """Implements ChangeFeed over the single subscriber connection of the process."""

    def __init__(self, subscriber: Subscriber, keys: Keys) -> None:
        self._subscriber = subscriber
        self._keys = keys

    async def subscribe(
        self, partition: int, on_changes: Callable[[Sequence[RunChange]], None], resync: Callable[[], None]
    ) -> Callable[[], None]:
        def decode(channel: str, message: bytes) -> None:
            try:
                changes = _DECODER.decode(message)
            except msgspec.MsgspecError:
                _log.exception("change_unreadable", channel=channel)
                return
            on_changes([_run_change(change) for change in changes])

        return await self._subscriber.subscribe(self._keys.channel(partition), decode, resync)


def _run_change(change: _Change) -> RunChange:
    run = RunName(change.flow_id, change.cycle, change.run)

    def apply(before: ChainState | None) -> ChainState | None:
        if not change.fields and not change.status:
            return None
        fields = as_mapping(change.fields)
        if change.status:
            fields |= {"status": change.status, "end_time": change.end_time}
        if "run_id" in fields:
            return state_of(run, fields)
        if before is None or before.version != change.version - 1:
            return None
        return state_after(before, {**fields, "version": change.version})

    return RunChange(run, change.version, apply)
