"""Contexts of calls that tests make up."""

from typing import Any


class WithoutHeaders:
    """A context whose client waits for no headers."""

    async def send_initial_metadata(self, _metadata: Any) -> None:
        """Do nothing."""
