"""Run the registry: `python -m tradewind.registry`."""

import tradewind.grpc_engine  # noqa: F401 - before grpc
from tradewind.registry.app import Registry
from tradewind.registry.settings import RegistrySettings
from tradewind.server.process import run

if __name__ == "__main__":
    run(Registry, RegistrySettings, "tradewind-registry")
