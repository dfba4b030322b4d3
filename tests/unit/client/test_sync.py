"""The client for code without an event loop."""

import asyncio
import gc
import inspect
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing

import pytest

from tests.unit.client.background_stack import background_stack
from tests.unit.client.fake_scheduler import FLOW, Ending
from tests.unit.client.fake_stack import FakeStack
from tests.waiting import until
from tradewind.api.scheduler.v1 import scheduler_service_pb2 as pb
from tradewind.client import (
    Client,
    CycleFailed,
    CycleRecord,
    FlowDescription,
    FlowRecord,
    NotFound,
    SyncClient,
    SyncCycleHandle,
    SyncTaskHandle,
    TradewindError,
)
from tradewind.client.background_loop import BackgroundLoop


@pytest.fixture
def stack_elsewhere() -> Iterator[FakeStack]:
    """A fake stack in another thread."""
    with background_stack() as stack:
        yield stack


@pytest.fixture
def sync_client(stack_elsewhere: FakeStack) -> Iterator[SyncClient]:
    """A client of that stack."""
    with SyncClient(stack_elsewhere.address) as client:
        yield client


def test_run_flow_returns_result(sync_client: SyncClient) -> None:
    assert sync_client.run_flow("momentum", {"n": 1}).result() == {"model": {"forecast": 7}}


def test_registers_lists_and_describes_flow(sync_client: SyncClient, stack_elsewhere: FakeStack) -> None:
    sync_client.wait_ready()
    sync_client.register_flow("prices", FLOW, labels={"team": "a"})
    flow = sync_client.flow("prices")
    run = flow.run(wait=5, request_id="order-17")

    assert [each.flow_id for each in sync_client.list_flows()] == ["momentum", "prices"]
    assert flow.flow_id == "prices"
    assert flow.describe().current_cycle == run.record
    assert run.describe().statistics.total_nodes == 2
    assert flow.cycle(0).get().succeeded
    assert (run.flow_id, run.cycle, run.run) == ("prices", 0, 0)
    assert stack_elsewhere.scheduler.last(pb.RunFlowRequest).request_id == "order-17"
    assert [each.worker_id for each in sync_client.list_workers()] == ["w1"]


def test_each_run_is_a_call_without_run_stream(stack_elsewhere: FakeStack) -> None:
    with SyncClient(stack_elsewhere.address, run_stream=False) as client:
        client.run_flow("momentum")

    assert stack_elsewhere.scheduler.streams == 0


def test_raises_exceptions_of_async_client(sync_client: SyncClient, stack_elsewhere: FakeStack) -> None:
    stack_elsewhere.scheduler.ending = Ending(status="FAILED", model="FAILED")

    with pytest.raises(NotFound):
        sync_client.get_flow("nobody")
    with pytest.raises(CycleFailed):
        sync_client.run_flow("momentum").result()


def test_bulk_run_returns_handles_and_errors(sync_client: SyncClient) -> None:
    first, second = sync_client.run_flows(["momentum", "nobody"])

    assert isinstance(first, SyncCycleHandle)
    assert isinstance(second, TradewindError)


def test_client_works_after_abandoned_iteration(sync_client: SyncClient, stack_elsewhere: FakeStack) -> None:
    sync_client.run_flow("momentum")

    for record in sync_client.watch_flows("momentum"):
        assert record.cycle == 0
        break

    assert sync_client.get_flow("momentum").current_cycle is not None


def test_threads_can_share_client(sync_client: SyncClient) -> None:
    results: list[object] = []
    threads = [
        threading.Thread(target=lambda: results.append(sync_client.run_flow("momentum").result())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert results == [{"model": {"forecast": 7}}] * 8


def test_first_call_may_be_watch_from_another_thread(sync_client: SyncClient) -> None:
    with ThreadPoolExecutor() as threads:
        watched = threads.submit(lambda: next(sync_client.watch_task("momentum:0:0:model")))

        assert watched.result().node_task_id == "momentum:0:0:model"


def test_closed_client_refuses_calls(stack_elsewhere: FakeStack) -> None:
    client = SyncClient(stack_elsewhere.address)
    client.close()
    client.close()

    with pytest.raises(RuntimeError, match="this client is closed"):
        client.get_flow("momentum")


async def test_async_with_names_the_client_for_event_loops() -> None:
    with (
        SyncClient() as client,
        pytest.raises(TypeError, match=r"use `with SyncClient\(\) as client:`, or Client where"),
    ):
        async with client:
            pass


def test_async_client_refuses_calls_from_another_event_loop(stack_elsewhere: FakeStack) -> None:
    client = Client(stack_elsewhere.address)

    async def called() -> str:
        return (await client.get_flow("momentum")).flow.flow_id

    async def watched() -> int:
        async with aclosing(client.watch_flows("momentum")) as states:
            return (await anext(states)).cycle

    async def called_and_closed() -> str:
        async with client:
            return await called()

    with asyncio.Runner() as first, asyncio.Runner() as second:
        assert first.run(called()) == "momentum"
        for use in (called, watched):
            with pytest.raises(RuntimeError, match="belong to another event loop"):
                second.run(use())
        assert first.run(called_and_closed()) == "momentum"


FORKING = """
import os, sys
from tradewind.client import SyncClient

client = SyncClient(sys.argv[1], timeout=5)
client.get_flow("momentum")
child = os.fork()
if not child:
    for calling in (client, SyncClient(sys.argv[1], timeout=5)):
        try:
            print(calling.get_flow("momentum").flow.flow_id)
        except Exception as error:
            print(error)
    sys.stdout.flush()
    os._exit(0)
os.waitpid(child, 0)
print("before:", client.get_flow("momentum").flow.flow_id)
client.close()
"""


def test_forked_process_cannot_use_clients_and_parent_still_can(stack_elsewhere: FakeStack) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKING, stack_elsewhere.address], stdout=subprocess.PIPE, text=True, timeout=60
    )

    inherited, created_after_fork, *others = ended.stdout.splitlines()
    assert inherited == created_after_fork
    assert "close clients and stop workers before forking" in inherited
    assert others == ["before: momentum"]


FORKING_AFTER_CLOSE = """
import os, sys
from tradewind.client import SyncClient

for _ in range(20):
    with SyncClient(sys.argv[1]) as client:
        client.get_flow("momentum")
    child = os.fork()
    if not child:
        SyncClient(sys.argv[1]).get_flow("momentum")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_forked_process_can_open_clients_once_those_of_parent_are_closed(stack_elsewhere: FakeStack) -> None:
    subprocess.run([sys.executable, "-c", FORKING_AFTER_CLOSE, stack_elsewhere.address], check=True, timeout=60)


OUTLIVED = """
import os, sys, time
from tradewind.client import SyncClient

client = SyncClient(sys.argv[1])
client.get_flow("momentum")
reading, writing = os.pipe()
if not os.fork():
    os.close(writing)
    os.read(reading, 1)
    os._exit(0)
begun = time.monotonic()
while time.monotonic() - begun < 4:
    client.get_flow("momentum")
    time.sleep(0.1)
client.close()
print("closed")
"""


def test_long_lived_forked_process_does_not_disturb_parent(stack_elsewhere: FakeStack) -> None:
    port = stack_elsewhere.address.rpartition(":")[2]
    ended = subprocess.run(
        [sys.executable, "-c", OUTLIVED, f"localhost:{port}"], stdout=subprocess.PIPE, text=True, timeout=60
    )

    assert (ended.returncode, ended.stdout) == (0, "closed\n")


def test_closing_ends_calls_of_other_threads(stack_elsewhere: FakeStack) -> None:
    stack_elsewhere.scheduler.ending = None
    client = SyncClient(stack_elsewhere.address)
    errors: list[str] = []

    def ask(question: Callable[[], object]) -> None:
        with pytest.raises(RuntimeError) as closed:
            question()
        errors.append(str(closed.value))

    questions = (lambda: client.run_flow("momentum", wait=30), lambda: list(client.watch_logs("momentum", interval=60)))
    threads = [threading.Thread(target=ask, args=[question], daemon=True) for question in questions]
    for thread in threads:
        thread.start()
    scheduler = stack_elsewhere.scheduler
    begun = until(lambda: scheduler.cycles["momentum"] and scheduler.count(pb.ListLogsRequest), "both are under way")
    asyncio.run(begun)
    client.close()
    for thread in threads:
        thread.join(10)

    assert errors == ["this client is closed"] * 2


INTERRUPTED = """
import asyncio, signal, threading
from tradewind.client.background_loop import BackgroundLoop

signal.signal(signal.SIGINT, signal.default_int_handler)

async def numbers():
    try:
        yield 1
        while True:  # Python does not notice a signal that comes just before it waits for a lock.
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            await asyncio.sleep(1)
    finally:
        await asyncio.sleep(0.05)
        print("unwound")

try:
    for number in BackgroundLoop().iterate(numbers()):
        print(number)
except KeyboardInterrupt:
    print("interrupted")
"""


def test_interrupted_iteration_raises_the_interruption_once_it_has_unwound() -> None:
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED], stdout=subprocess.PIPE, text=True, timeout=60)

    assert ended.stdout.split() == ["1", "unwound", "interrupted"]


LATE = """
import asyncio
from tradewind.client.background_loop import BackgroundLoop

class Left:
    def __del__(self):
        try:
            loop.wait(sleep(0))
        except RuntimeError as error:
            print(error)

loop, sleep, left = BackgroundLoop(), asyncio.sleep, Left()
"""


def test_client_that_is_used_after_the_end_of_the_program_is_closed() -> None:
    ended = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60)

    assert (ended.stdout, ended.stderr) == ("this client is closed\n", "")


def test_garbage_collector_may_close_iteration_in_client_thread() -> None:
    """The collector may run in the client's own thread, where waiting is impossible."""
    loop = BackgroundLoop()
    ended = threading.Event()

    async def numbers() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.set()

    async def collect() -> None:
        gc.collect()

    gc.disable()
    try:
        knot: list[object] = []
        knot += [knot, loop.iterate(numbers())]
        assert next(knot[1]) == 1  # type: ignore[call-overload]
        del knot
        asyncio.run_coroutine_threadsafe(collect(), loop._loop).result(10)
    finally:
        gc.enable()

    assert ended.wait(10)
    loop.close()


def test_has_every_method_of_async_client() -> None:
    """Methods of the asynchronous client must be here too, with their documentation.

    Only receiving is left to code with an event loop: it lasts long, and is answered while it goes on.
    """
    public = {name for name in dir(Client) if not name.startswith("_")}

    assert public - set(dir(SyncClient)) == {"receive_due"}
    assert SyncClient.get_flow.__doc__ == Client.get_flow.__doc__


def test_signatures_name_what_is_returned() -> None:
    def returned(name: str) -> object:
        return inspect.signature(getattr(SyncClient, name)).return_annotation

    assert returned("run_flow") is SyncCycleHandle
    assert returned("task") is SyncTaskHandle
    assert returned("list_flows") == Iterator[FlowRecord]
    assert returned("watch_flows") == Iterator[CycleRecord]
    assert returned("get_flow") is FlowDescription


def test_says_where_it_leads_and_how_patient_it_is() -> None:
    with SyncClient("stack.example:7700", patience=3) as client:
        assert (client.addresses.trigger, client.patience) == ("stack.example:7700", 3)
        client.patience = "5s"
        assert client.patience == 5
        assert repr(client) == "SyncClient('stack.example:7700')"


def test_every_list_is_iterated_over() -> None:
    """One way to read a list, whether its RPC has pages or not."""
    lists = [name for name in dir(Client) if name.startswith("list_")]

    assert [name for name in lists if not inspect.isasyncgenfunction(getattr(Client, name))] == []
