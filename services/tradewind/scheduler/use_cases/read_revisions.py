"""Reads the revisions of a flow, and compares them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tradewind.scheduler.domain.flow_diff import FlowDiff, diff_of
from tradewind.scheduler.domain.revision import Revision
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.ports.revisions import Revisions
from tradewind.scheduler.use_cases.faults import diff_too_large, revision_not_found
from tradewind.scheduler.use_cases.read_flows import ReadFlows
from tradewind.server.large_work import LARGE_BYTES, in_thread_if

LARGEST_DIFF_BYTES = 3 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RevisionPage:
    """Revisions, newest first; the next page's `below`, 0 for none; the number of the current revision."""

    revisions: tuple[Revision, ...]
    following: int
    current: int


class ReadRevisions:
    """Reads revisions from the record."""

    def __init__(self, read: ReadFlows, flows: FlowRecords, revisions: Revisions) -> None:
        self._read = read
        self._flows = flows
        self._revisions = revisions

    async def page(self, flow_id: str, below: int, limit: int) -> RevisionPage:
        """Return up to `limit` revisions below number `below` (0: from the current one on). Raises NotFound."""
        flow = await self._read.flow(flow_id)
        found = await self._revisions.newest(flow_id, below, limit + 1)
        more = len(found) > limit
        return RevisionPage(tuple(found[:limit]), found[limit - 1].number if more else 0, flow.revision)

    async def revision(self, flow_id: str, number: int) -> tuple[Revision, str, int]:
        """Return a revision (0: the current one), its definition as JSON text, and the current revision's number.

        Raises NotFound.
        """
        current = (await self._read.flow(flow_id)).revision
        number = number or current
        found = await self._revisions.newest(flow_id, number + 1, 1)
        text = await self._flows.definition(flow_id, number)
        if text is None or not found or found[0].number != number:
            raise revision_not_found(flow_id, number, current)
        return found[0], text, current

    async def diff(self, flow_id: str, first: int, second: int) -> tuple[int, int, FlowDiff]:
        """Return the numbers of two revisions, and the changes that lead from the first to the second.

        A `second` of 0 is the current revision; a `first` of 0 is the revision on record before the second. Raises
        NotFound, Exhausted when the changes are too large for an answer.
        """
        after, after_text, latest = await self.revision(flow_id, second)
        if not first:
            before_it = await self._revisions.newest(flow_id, after.number, 1)
            if not before_it:
                raise revision_not_found(flow_id, after.number - 1, latest)
            first = before_it[0].number
        before, before_text, _ = await self.revision(flow_id, first)
        large = len(before_text) + len(after_text) > LARGE_BYTES
        diff = await in_thread_if(
            large, diff_of_texts, before_text, dict(before.labels), after_text, dict(after.labels)
        )
        if diff.size > LARGEST_DIFF_BYTES:
            raise diff_too_large(flow_id, before.number, after.number)
        return before.number, after.number, diff


def diff_of_texts(
    before_json: str, before_labels: Mapping[str, str], after_json: str, after_labels: Mapping[str, str]
) -> FlowDiff:
    """Return the changes that lead from one definition, with all labels of the flow, to another."""
    return diff_of(_weather_of(before_json, before_labels), _weather_of(after_json, after_labels))


def _weather_of(config_json: str, labels: Mapping[str, str]) -> dict[str, Any]:
    weather: dict[str, Any] = json.loads(config_json)
    weather.pop("labels", None)
    return {**weather, "labels": dict(labels)} if labels else weather
