"""CPU time per no-op node inside the worker SDK, without a network: `python -m benchmarks.worker_sdk`.

Each round does the work for one message of assignments: parse it, bind, run, encode, build the outgoing message,
serialize it, and acknowledge it.
"""

import argparse
import asyncio
import statistics
import time
from typing import Any

import uvloop

from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker import Context, Node, node
from tradewind.worker.executor import Executor
from tradewind.worker.outbox import Outbox
from tradewind.worker.running import NodeRunner
from tradewind.worker.secrets import SecretResolver
from tradewind.worker.threads import ThreadPool


@node("bare")
async def bare() -> None:
    """Take nothing and return nothing."""


@node("value")
async def value(ctx: Context, value: dict[str, int], step: int = 1) -> dict[str, int]:
    """Take a small JSON value, a config and the context, and return a small JSON value."""
    return value


@node("thread")
def thread() -> None:
    """Take nothing and return nothing, in a thread."""


NODES: list[Node[..., Any]] = [bare, value, thread]


def message(node_type: str, size: int, round_number: int) -> bytes:
    """Return a WorkResponse with `size` assignments, as received."""
    response = work_pb2.WorkResponse()
    deadline = int(time.time()) + 300
    for index in range(size):
        token = f"s0:flow:{round_number}:0:node{index}:1:0123456789abcdef"
        assignment = response.assignments.add(
            token=token,
            node_task_id=f"flow:{round_number}:0:node{index}",
            flow_id="flow",
            cycle=round_number,
            run_id="4f1d2a",
            component_id="0",
            node_id=f"node{index}",
            node_type=node_type,
            attempt=1,
            user_id="default",
        )
        assignment.deadline.seconds = deadline
        assignment.planned_time.seconds = deadline - 300
        if node_type == "value":
            assignment.config_json = '{"step":2}'
            assignment.inputs.add(handle="value", values_json=['{"hop":7}'])
    return response.SerializeToString()


async def measure(node_type: str, size: int, nodes: int) -> float:
    """Return the microseconds of CPU per node, over `nodes` nodes in messages of `size`."""
    messages = [message(node_type, size, number) for number in range(nodes // size)]
    outbox = Outbox(lambda: executor.name_held_tokens())
    executor = Executor({each.type: each for each in NODES}, outbox, NodeRunner(SecretResolver(), ThreadPool(8)))
    sequence = 0
    began = time.process_time()
    for raw in messages:
        response = work_pb2.WorkResponse.FromString(raw)
        for assignment in response.assignments:
            if not outbox.remembers(assignment.token):
                executor.start(assignment)
        done = 0
        while done < size:
            await outbox.wait()
            sequence += 1
            request = outbox.take(sequence)
            done += len(request.completions)
            assert not request.failures
            request.SerializeToString()
        outbox.acknowledge(sequence)
    spent = time.process_time() - began
    await executor.close()
    return spent / nodes * 1e6


def main() -> None:
    """Print the medians for messages of 1 and of 100 assignments."""
    parser = argparse.ArgumentParser(description="CPU time per no-op node inside the worker SDK.")
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(f"{'node':8} {'message of':>10} {'us/node':>8}")
    for each in NODES:
        for size in (1, 100):
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                spent = [runner.run(measure(each.type, size, given.nodes)) for _ in range(given.rounds)]
            print(f"{each.type:8} {size:10} {statistics.median(spent):8.1f}")


if __name__ == "__main__":
    main()
