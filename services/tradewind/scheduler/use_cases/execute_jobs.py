"""Carries out bulk jobs bit by bit."""

from dataclasses import replace

from tradewind.scheduler.domain.bulk_job import BulkAction, BulkJob, BulkStatus
from tradewind.scheduler.domain.cycle_outline import CycleOutline
from tradewind.scheduler.domain.cycle_status import are_open
from tradewind.scheduler.domain.flow_record import DEFAULT_USER, RememberedRequest
from tradewind.scheduler.domain.run_name import RunName
from tradewind.scheduler.ports.bulk_jobs import BulkJobs
from tradewind.scheduler.ports.cycles import ChainStateRepository, CycleRecords
from tradewind.scheduler.ports.flows import FlowRecords
from tradewind.scheduler.use_cases.rerun_cycle import RerunCycle, RerunOptions
from tradewind.scheduler.use_cases.stop_cycle import StopCycle
from tradewind.server.clock import Clock
from tradewind.server.faults import Fault, Unavailable, Unreadable
from tradewind.server.reading import UnreadableLog

_PAGE, _MATCHES = 500, 20
"""How many runs are examined at once, and on how many a step acts at most. After a crash, the step finds them again."""
_CLOCKS_APART_MS = 60_000
"""A rerun by a job begins at most so long before the job, by the clocks of two nodes of a cluster."""
_PAGES = 10
"""How many pages, or flows, one step goes through at most: where nothing is to be done, steps would mostly rest."""
_FLOWS = 512
"""How many flows are looked at together at most, to find the next one."""


class ExecuteJobs:
    """Carries out jobs by their records: a step that a crash interrupts is repeated, and finds what it has done."""

    def __init__(
        self,
        jobs: BulkJobs,
        flows: FlowRecords,
        cycles: CycleRecords,
        states: ChainStateRepository,
        rerun: RerunCycle,
        stop: StopCycle,
        clock: Clock,
    ) -> None:
        self._jobs = jobs
        self._flows = flows
        self._cycles = cycles
        self._states = states
        self._rerun = rerun
        self._stop = stop
        self._clock = clock
        self._unreadable = UnreadableLog(__name__)

    async def step(self, job_id: str) -> bool:
        """Carry out a bounded part of a job; return whether anything is left.

        Passes over flows of which the index of cycles cannot be read, and logs them.
        Raises Unavailable, and errors of the store; the caller must then repeat the step.
        """
        job = await self._jobs.find(job_id)
        if job is None or job.status is not BulkStatus.RUNNING:
            return False
        after: BulkJob | None = job
        for _ in range(_PAGES):
            if after is not None and after.matched == job.matched:
                after = await self._advance(after)
        if after is None:
            after = job.ended(BulkStatus.COMPLETED, self._clock.now_ms())
        # If somebody has cancelled the job meanwhile, this write fails and the job stays cancelled.
        await self._jobs.save(after)
        return after.status is BulkStatus.RUNNING

    async def _advance(self, job: BulkJob) -> BulkJob | None:
        """Return the job after its next step, None when it is through."""
        if job.full:
            return None
        if job.through:
            flow_id = await self._flow_after(job)
            return None if flow_id is None else replace(job, flow_id=flow_id, cycle=-1, run=0, through=False)
        below = RunName(job.flow_id, job.cycle, job.run) if job.cycle >= 0 else None
        try:
            outlines = await self._cycles.outlines(job.flow_id, below, _PAGE)
        except Unreadable as error:
            self._unreadable.note(error, job_id=job.job_id)
            return replace(job, through=True)
        most = job.filter.limit if job.dry_run else min(job.filter.limit, job.matched + _MATCHES)
        for latest in outlines:
            # The latest run of a cycle comes first, and is the only one that counts.
            if latest.name.cycle != job.cycle:
                job = await self._process(job, latest)
            job = job.moved_to(latest.name)
            if job.matched >= most:
                return job
        if len(outlines) < _PAGE:
            return replace(job, through=True)
        return await self._skip_ended(job) if are_open(job.filter.statuses) else job

    async def _skip_ended(self, job: BulkJob) -> BulkJob:
        """Return the job moved on to the next cycle with a run that has not ended, which its next step begins with.

        A step that is repeated after a crash has to find again what it has stopped: so it goes on from there, although
        nothing there may be open any more.
        """
        run = await self._cycles.newest_open(job.flow_id, RunName(job.flow_id, job.cycle))
        return replace(job, through=True) if run is None else job.moved_to(RunName(job.flow_id, run.cycle + 1))

    async def _flow_after(self, job: BulkJob) -> str | None:
        exact_flow_ids = job.filter.exact_flow_ids
        if exact_flow_ids is not None:
            return next((flow_id for flow_id in exact_flow_ids if flow_id > job.flow_id), None)
        after, most = job.flow_id, 1
        while ids := await self._flows.list_ids(after, most):
            begun = await self._cycles.begun_flows([each for each in ids if job.filter.matches_flow(each)])
            if begun:
                return begun[0]
            # Mostly either the next flow has something to do, or none of many.
            after, most = ids[-1], min(_FLOWS, most * 8)
        return None

    async def _process(self, job: BulkJob, latest: CycleOutline) -> BulkJob:
        if latest.stop_by == job.signature or await self._began(job, latest):
            return job.with_match(latest.name, None)
        if not job.filter.matches(latest):
            return job
        return job.with_match(latest.name, None if job.dry_run else await self._apply(job, latest.name))

    async def _began(self, job: BulkJob, latest: CycleOutline) -> bool:
        """Say whether the job has begun this run already, before a crash."""
        rerun = job.action is BulkAction.RERUN and latest.name.run > 0 and not job.dry_run
        if not rerun or latest.start_ms < job.created_ms - _CLOCKS_APART_MS:
            return False
        (state,) = await self._states.load_many([latest.name])
        return state is not None and state.facts.rerun is not None and state.facts.rerun.by == job.signature

    async def _apply(self, job: BulkJob, name: RunName) -> tuple[str, str] | None:
        """Apply the job's action to a cycle, by its latest run; return why it failed, None if it did not."""
        flow_id, cycle, run = name
        try:
            if job.action is BulkAction.STOP:
                await self._stop(flow_id, cycle, run, job.signature, job.reason or "stopped by a job", once=True)
            else:
                request = RememberedRequest(DEFAULT_USER, flow_id, f"{job.job_id}/{cycle}", "rerun")
                options = RerunOptions(flow_id, cycle, run, by=job.signature, reason=job.reason, request=request)
                await self._rerun(options)
        except Unavailable:
            raise
        except Fault as fault:
            return fault.reason, fault.message
        return None
