"""Run the scheduler: `python -m tradewind.scheduler`."""

import tradewind.grpc_engine  # noqa: F401 - before grpc
from tradewind.scheduler.app import NAME, Scheduler
from tradewind.scheduler.settings import SchedulerSettings
from tradewind.server.process import run

if __name__ == "__main__":
    run(Scheduler, SchedulerSettings, NAME)
