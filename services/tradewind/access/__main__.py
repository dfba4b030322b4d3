"""Run the access service: `python -m tradewind.access`."""

import tradewind.grpc_engine  # before grpc
import tradewind.server.first_process  # noqa: F401 - before what takes long to import
from tradewind.access.app import Access
from tradewind.access.settings import AccessSettings
from tradewind.server.process import run

if __name__ == "__main__":
    run(Access, AccessSettings, "tradewind-access")
