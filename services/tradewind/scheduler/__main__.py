"""Run the scheduler: `python -m tradewind.scheduler`."""

import tradewind.grpc_engine  # before grpc
import tradewind.server.first_process  # noqa: F401 - before what takes long to import
from tradewind.scheduler.app import NAME, Scheduler
from tradewind.scheduler.settings import SchedulerSettings
from tradewind.server.process import run

if __name__ == "__main__":
    run(Scheduler, SchedulerSettings, NAME)
