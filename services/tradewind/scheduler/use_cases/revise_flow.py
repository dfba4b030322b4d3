"""Changes a flow on record: updates some of its fields, or rolls it back to an older revision."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from tradewind.scheduler.domain.fault_list import FaultList
from tradewind.scheduler.domain.flow_analysis import analyze, check_catching_up
from tradewind.scheduler.domain.flow_record import FlowRecord
from tradewind.scheduler.domain.flow_update import check_mask, updated
from tradewind.scheduler.domain.weather import FlowDraft, read_weather, read_weather_json
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.scheduler.use_cases.read_revisions import ReadRevisions
from tradewind.scheduler.use_cases.register_flow import RegisterFlow
from tradewind.scheduler.use_cases.store_definition import Author, Registered, StoreDefinition, registration_of
from tradewind.server.clock import Clock
from tradewind.server.faults import Aborted, InvalidInput, Violation
from tradewind.server.large_work import LARGE_BYTES, in_thread_if

_DEADLINE_S = 5.0
"""How long a change without an etag is tried again when other changes come first."""


class ReviseFlow:
    """Changes a flow as it was read; the change is refused when somebody else has changed the flow since."""

    def __init__(
        self, read: ReadFlows, revisions: ReadRevisions, register: RegisterFlow, store: StoreDefinition, clock: Clock
    ) -> None:
        self._read = read
        self._revisions = revisions
        self._register = register
        self._store = store
        self._clock = clock

    async def update(
        self, flow_id: str, given: Mapping[str, Any], paths: Sequence[str], faults: FaultList, author: Author
    ) -> Registered:
        """Take the fields at `paths` from `given`, in Weather Syntax; `faults` were found while `given` was read.

        The graph stays and is not checked again. Raises NotFound, InvalidInput with every fault, and what
        StoreDefinition raises.
        """
        check_mask(paths, faults)
        _raise_faults([*faults.violations(), *author.faults()])

        async def change(flow: FlowRecord, author: Author) -> Registered:
            request = author.request(flow.user_id, flow_id, "update", sorted(paths), given)
            large = len(flow.config_json) > LARGE_BYTES
            draft = await in_thread_if(large, _draft_after, flow.config_json, given, paths)
            if draft.definition is None:
                raise InvalidInput(draft.faults.violations())
            chains = await self._register.chains_of(flow_id, "", draft.definition)
            _raise_faults(chains.faults)
            labels = dict(draft.definition.labels if "labels" in paths else flow.labels)
            now_ms = self._clock.now_ms()
            registration = await in_thread_if(
                large,
                registration_of,
                flow_id,
                draft.definition,
                labels,
                now_ms,
                author,
                standing=flow,
                request=request,
            )
            warnings = FaultList()
            check_catching_up(draft.definition, warnings)
            return await self._store(registration, (*warnings.violations(), *chains.warnings), draft.definition)

        return await self._with_retries(flow_id, author, change)

    async def roll_back(self, flow_id: str, revision: int, author: Author) -> Registered:
        """Restore the definition and labels of an older revision; faults against live workers are only warnings.

        The fields of `author` have no faults.
        Raises NotFound, InvalidInput when its schedule has nothing more planned, and what StoreDefinition raises.
        """
        older, config_json, _ = await self._revisions.revision(flow_id, revision)
        large = len(config_json) > LARGE_BYTES
        draft = await in_thread_if(large, read_weather_json, config_json, "revision")
        checked = await self._register.analyze(draft)
        if checked.definition is None and (found := await in_thread_if(large, analyze, draft)).definition is None:
            raise InvalidInput(found.violations)
        definition, labels = draft.definition, dict(older.labels)
        assert definition is not None, "it has no faults"
        paths = await self._register.paths_of(flow_id, "", definition)
        _raise_faults(paths.faults)
        warnings = (*checked.violations, *checked.warnings, *paths.warnings)
        author = replace(author, note=author.note or f"as revision {revision}")

        async def change(flow: FlowRecord, author: Author) -> Registered:
            request = author.request(flow.user_id, flow_id, "roll back", revision)
            now_ms = self._clock.now_ms()
            registration = await in_thread_if(
                large, registration_of, flow_id, definition, labels, now_ms, author, standing=flow, request=request
            )
            return await self._store(registration, warnings, definition)

        return await self._with_retries(flow_id, author, change)

    async def _with_retries(
        self, flow_id: str, author: Author, change: Callable[[FlowRecord, Author], Awaitable[Registered]]
    ) -> Registered:
        """Make a change to the flow; without an etag, start again if somebody else has changed the flow meanwhile."""

        async def once() -> Registered:
            flow = await self._read.flow(flow_id)
            return await change(flow, replace(author, etag=author.etag or flow.etag))

        if author.etag:
            return await once()
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(Aborted),
            wait=wait_random_exponential(multiplier=0.005, max=0.5),
            stop=stop_after_delay(_DEADLINE_S),
            reraise=True,
        )
        return await retrying(once)


def _draft_after(config_json: str, given: Mapping[str, Any], paths: Sequence[str]) -> FlowDraft:
    return read_weather(updated(json.loads(config_json), given, paths))


def _raise_faults(faults: Sequence[Violation]) -> None:
    if faults:
        raise InvalidInput(faults)
