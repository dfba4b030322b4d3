"""Run the trigger service: `python -m tradewind.trigger`."""

import tradewind.grpc_engine  # before grpc
import tradewind.server.first_process  # noqa: F401 - before what takes long to import
from tradewind.server.process import run
from tradewind.trigger.app import TriggerService
from tradewind.trigger.settings import TriggerSettings

if __name__ == "__main__":
    run(TriggerService, TriggerSettings, "tradewind-trigger")
