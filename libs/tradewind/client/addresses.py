"""Where the servers are: one address for all of them, or one each."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from tradewind.client.messages import describe_value

DEFAULT_ADDRESS = "localhost:7700"


@dataclass(frozen=True, slots=True)
class Addresses:
    """The `host:port` of each server that a client calls, or a gRPC target such as `unix:/path`; "" for no `access`."""

    scheduler: str
    registry: str
    node_task_manager: str
    trigger: str = DEFAULT_ADDRESS
    access: str = DEFAULT_ADDRESS

    @classmethod
    def find(cls, address: str | None = None, environment: Mapping[str, str] | None = None) -> "Addresses":
        """Return `address` for all servers, or else the addresses in the environment, or else localhost:7700.

        The variables TRADEWIND_SCHEDULER_ADDRESS, TRADEWIND_REGISTRY_ADDRESS, TRADEWIND_NODE_TASK_MANAGER_ADDRESS,
        TRADEWIND_TRIGGER_ADDRESS and TRADEWIND_ACCESS_ADDRESS name single servers, TRADEWIND_ADDRESS all the others.
        Raises TypeError for an address that is not text.
        """
        if address is not None and not isinstance(address, str):
            raise TypeError(f'an address must be text, such as "localhost:7700"; {describe_value(address)}')
        if address:
            return cls(address, address, address, address, address)
        known = os.environ if environment is None else environment
        every = known.get("TRADEWIND_ADDRESS") or DEFAULT_ADDRESS
        return cls(
            known.get("TRADEWIND_SCHEDULER_ADDRESS") or every,
            known.get("TRADEWIND_REGISTRY_ADDRESS") or every,
            known.get("TRADEWIND_NODE_TASK_MANAGER_ADDRESS") or every,
            known.get("TRADEWIND_TRIGGER_ADDRESS") or every,
            known.get("TRADEWIND_ACCESS_ADDRESS") or every,
        )
