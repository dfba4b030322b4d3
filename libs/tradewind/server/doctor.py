"""Checks the invariants of a store: step by step, each finding checked twice, on request and in the background.

A service provides examiners: each walks through a part of its store (a shard, a partition), some records at a time.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import structlog

from tradewind.server.settings import CommonSettings

_log = structlog.get_logger(__name__)

UNREADABLE = "unreadable"
"""The check that all doctors have: nothing on record has been changed so that it cannot be examined."""
RECHECK_S = 0.3
"""How long after the first check a finding is checked again: whatever was merely in flight is over by then."""
AFTER_LOSS_S = 20.0
"""How long after a loss of the store it is looked through: by then a replica has taken over, and a master that hung and
still takes writes has been told that it is none any more."""
_STEP = 100
"""About how many records one step examines."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A broken invariant: the check's name, the id of a record or an index and its entry, what is wrong, and whether it
    was mended."""

    check: str
    subject: str
    problem: str
    mended: bool = False

    @property
    def name(self) -> str:
        """The name that identifies it from one look to the next."""
        return f"{self.check} {self.subject}"


@dataclass(frozen=True, slots=True)
class Examined:
    """What a step examined and found; the next step goes on at `at`, which is "" when the examiner is done."""

    records: int
    findings: tuple[Finding, ...]
    at: str


class Examiner(Protocol):
    """Looks through a part of a store."""

    async def __call__(self, at: str, records: int, recheck: Collection[str] | None, mend: bool) -> Examined:
        """Look at about `records` records from `at` on, "" for the beginning.

        A second look gets the names of the first one's findings (`recheck`) and returns only those that still hold;
        with `mend`, it repairs what it can. Otherwise nothing is changed.
        """
        ...


Examiners = Callable[[bool], Awaitable[Iterable[Examiner]]]
"""Returns the examiners that this replica has to run now, or with True those of all replicas."""


async def no_examiners(everything: bool) -> Iterable[Examiner]:
    """Return none: for a store that keeps nothing twice, so that nothing in it can disagree."""
    return ()


class Doctor:
    """Runs examiners; `examiners()` returns those that this replica has to run now, or with True those of all replicas.

    Counts in `found`, by check, what it finds in the background.
    """

    def __init__(
        self,
        examiners: Examiners,
        *,
        every_s: float = 0,
        per_second: int = 200,
        mend: bool = True,
        recheck_s: float = RECHECK_S,
    ) -> None:
        self._examiners = examiners
        self._every_s = every_s
        self._per_second = per_second
        self._mend = mend
        self._recheck_s = recheck_s
        self._asked = asyncio.Event()
        self.found: Counter[str] = Counter()

    async def run(self, *, mend: bool) -> AsyncIterator[Examined]:
        """Look through everything at full speed; yield each step that found something, and the last step."""
        records = 0
        for examiner in await self._examiners(True):
            async for step in self._examine(examiner, mend):
                records += step.records
                if step.findings:
                    yield Examined(records, step.findings, step.at)
                    records = 0
                # Others need the store as well.
                await asyncio.sleep(0)
        yield Examined(records, (), "")

    def look_soon(self) -> None:
        """Look through this replica's part soon, as when the store, or that of another service, may have lost some."""
        self._asked.set()

    async def watch(self) -> None:
        """Look through this replica's part forever, a bounded number of records a second; log and count what it finds.

        Returns at once when that is switched off.
        """
        while self._every_s:
            await self._rest()
            try:
                for examiner in await self._examiners(False):
                    async for step in self._examine(examiner, self._mend):
                        self._report(step)
                        await asyncio.sleep(max(step.records, 1) / self._per_second)
            except Exception as error:
                _log.warning("doctor_stopped", error=error, next_after_s=self._every_s)

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(self._every_s * random.uniform(0.9, 1.1)):
                await self._asked.wait()
        except TimeoutError:
            return
        # What is lost from now on, it looks for once more.
        self._asked.clear()
        await asyncio.sleep(AFTER_LOSS_S * random.uniform(1, 1.25))

    async def _examine(self, examiner: Examiner, mend: bool) -> AsyncIterator[Examined]:
        at, reported = "", set[str]()
        while True:
            step = await examiner(at, _STEP, None, False)
            names = [finding.name for finding in step.findings if finding.name not in reported]
            findings: tuple[Finding, ...] = ()
            if names:
                await asyncio.sleep(self._recheck_s)
                findings = (await examiner(at, _STEP, names, mend)).findings
            yield replace(step, findings=findings)
            reported |= {finding.name for finding in findings}
            # Where entries were removed, others have moved up that no step has examined: look there again.
            if not any(finding.mended for finding in findings):
                at, reported = step.at, set()
                if not at:
                    return

    def _report(self, step: Examined) -> None:
        for finding in step.findings:
            self.found[finding.check] += 1
            fields: dict[str, Any] = {"check": finding.check, "subject": finding.subject, "mended": finding.mended}
            _log.error("invariant_broken", **fields, problem=finding.problem, so_far=self.found[finding.check])


def doctor_of(examiners: Examiners, settings: CommonSettings) -> Doctor:
    """Return the doctor of a service, configured by its settings."""
    return Doctor(
        examiners,
        every_s=settings.doctor_seconds,
        per_second=settings.doctor_records_per_second,
        mend=settings.doctor_mend,
    )
