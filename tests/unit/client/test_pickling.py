"""Clients and handles that somebody wants to pickle, as multiprocessing does to pass them on."""

import copy
import pickle
from collections.abc import Callable

import pytest

from tradewind.client import Client, SyncClient


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.deepcopy])
async def test_clients_and_handles_say_what_to_pass_on_instead(duplicate: Callable[[object], object]) -> None:
    with SyncClient() as sync_client:
        async with Client() as client:
            for maker in (client, sync_client):
                for each in (
                    maker,
                    maker.flow("momentum"),
                    maker.cycle("momentum", 0),
                    maker.task("t"),
                    maker.batch("b"),
                ):
                    with pytest.raises(
                        TypeError, match="cannot be pickled or copied: pass the client's address, or the ids"
                    ):
                        duplicate(each)
