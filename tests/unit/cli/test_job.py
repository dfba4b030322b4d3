"""`tradewind job` as it is piped."""

from tests.unit.cli.shell import Shell
from tests.unit.client.fake_stack import FakeStack
from tradewind.api.scheduler.v1 import job_pb2


def test_exit_code_tells_whether_job_succeeded(shell: Shell, stack: FakeStack) -> None:
    stop = ("job", "stop", "momentum", "--wait")
    stack.scheduler.job.status = job_pb2.BULK_JOB_STATUS_COMPLETED
    shell(*stop)

    stack.scheduler.job.status = job_pb2.BULK_JOB_STATUS_CANCELLED
    assert shell(*stop, ends=1).lines == ["job-1 stop cancelled: 3 cycles matched, 1 done, 0 failed"]

    stack.scheduler.job.status = job_pb2.BULK_JOB_STATUS_COMPLETED
    stack.scheduler.job.failed = 1
    shell(*stop, ends=1)


def test_one_cycle_is_counted_as_one(shell: Shell, stack: FakeStack) -> None:
    stack.scheduler.job.status = job_pb2.BULK_JOB_STATUS_COMPLETED
    stack.scheduler.job.matched = 1

    assert shell("job", "show", "job-1").lines[0].startswith("job-1 stop completed: 1 cycle matched, ")
