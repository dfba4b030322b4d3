"""Publishes to the trigger service that cycles have ended, if somebody listens to ends."""

import asyncio
from collections.abc import Collection, Sequence

import structlog

from tradewind.scheduler.domain.ended_run import EndedRun
from tradewind.scheduler.domain.event_schedule import FLOW_FINISHED
from tradewind.scheduler.ports.cycles import ChainStateRepository
from tradewind.scheduler.ports.ends import Ends, Events
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.ports.peers import PeerRefused, PeerUnavailable
from tradewind.scheduler.use_cases.load_portion import load_portion

_AT_ONCE = 100
_CALLS_AT_ONCE = 20

_log = structlog.get_logger(__name__)


class PublishEnds:
    """While nobody listens, no ends are written or read; `has_listeners` is the trigger service's last answer.

    Before its first answer somebody may be listening, so ends in the first moments of a scheduler are published too.
    """

    def __init__(self, ends: Ends, states: ChainStateRepository, flows: FlowRecords, events: Events) -> None:
        self._ends = ends
        self._states = states
        self._flows = flows
        self._events = events
        self.has_listeners = True
        self._listeners_seen = 0

    def on_listener(self) -> None:
        """Note that somebody has begun to listen."""
        self.has_listeners = True
        self._listeners_seen += 1

    async def poll_listeners(self) -> None:
        """Ask whether anybody listens. Raises PeerUnavailable; then `has_listeners` stays as it was."""
        listeners_seen = self._listeners_seen
        listened = await self._events.has_listeners(FLOW_FINISHED)
        # A listener that came meanwhile may have come too late for this answer.
        self.has_listeners = listened or listeners_seen != self._listeners_seen

    async def __call__(self, partitions: Collection[int]) -> bool:
        """Publish the ends that wait in partitions that the caller owns; return whether all have been published.

        An end is kept until the trigger service has it. After a crash it may be published again: the trigger service
        recognizes it.
        """
        while ends := await self._ends.waiting(partitions, _AT_ONCE):
            states = await load_portion(self._states, [end.run for end in ends])
            ends = ends[: len(states)]
            # Flows begin on ends of the same user's flows only, so an end says whose it is even if its record is gone.
            gone = [end.run.flow_id for end, state in zip(ends, states, strict=True) if not end.is_of(state)]
            owners = dict(zip(gone, await self._flows.owners(gone), strict=True))
            payloads = [
                end.payload(state, owners.get(end.run.flow_id)) for end, state in zip(ends, states, strict=True)
            ]
            published = [
                await self._publish_all(ends[first : first + _CALLS_AT_ONCE], payloads[first : first + _CALLS_AT_ONCE])
                for first in range(0, len(ends), _CALLS_AT_ONCE)
            ]
            if not all(published):
                return False
        return True

    async def _publish_all(self, ends: Sequence[EndedRun], payloads: Sequence[str]) -> bool:
        calls = (self._publish(end, payload) for end, payload in zip(ends, payloads, strict=True))
        published = [end for end, done in zip(ends, await asyncio.gather(*calls), strict=True) if done]
        if published:
            await self._ends.remove(published)
        return len(published) == len(ends)

    async def _publish(self, end: EndedRun, payload: str) -> bool:
        try:
            await self._events.publish(FLOW_FINISHED, end.run_id, payload)
        except PeerUnavailable as error:
            _log.warning("end_not_published", run=str(end.run), error=error.detail)
            return False
        except PeerRefused as error:
            _log.error("end_refused", run=str(end.run), error=error)
        return True
