"""Run the registry: `python -m tradewind.registry`."""

import tradewind.grpc_engine  # before grpc
import tradewind.server.first_process  # noqa: F401 - before what takes long to import
from tradewind.registry.app import Registry
from tradewind.registry.settings import RegistrySettings
from tradewind.server.process import run

if __name__ == "__main__":
    run(Registry, RegistrySettings, "tradewind-registry")
