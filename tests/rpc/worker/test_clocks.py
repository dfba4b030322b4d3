"""Workers whose clock is not the server's."""

import time
from datetime import UTC, datetime

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tests.clocks import set_clock
from tests.rpc.worker.conftest import Waiting, double
from tests.rpc.worker.engine import Engine, assignment
from tests.waiting import until
from tradewind.api.node_task_manager.v1 import work_pb2
from tradewind.worker import Context, Worker, node

HOURS = pytest.mark.parametrize("ahead_s", [7200.0, -7200.0])


@node("tell", eager=True)
async def tell(ctx: Context, value: int = 0) -> str:
    return str(ctx.deadline)


def at(seconds: float) -> Timestamp:
    return Timestamp(seconds=int(seconds), nanos=int(seconds % 1 * 1e9))


@HOURS
async def test_deadline_follows_clock_of_server(
    engine: Engine, waiting: Waiting, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    sent = float(int(time.time()))
    async with Worker([tell, waiting.node], address=engine.address):
        session = await engine.session()
        set_clock(monkeypatch, ahead_s)
        given = [
            assignment("tell", "t1", deadline=at(sent + 60)),
            assignment(waiting.node.type, "t2", deadline=at(sent + 0.1)),
        ]
        session.send(work_pb2.WorkResponse(assignments=given, sent_at=at(sent)))
        await session.until_completed("t1")
        await until(lambda: session.failures, "the time of the other is over")

    assert session.completions[0].outputs[0].value_json == f'"{datetime.fromtimestamp(sent + 60, UTC)}"'
    assert (session.failures[0].token, session.failures[0].error.code) == ("t2", "TIMEOUT")
    assert waiting.begun == ["t2"]


@HOURS
async def test_deadline_of_eager_node_follows_clock_of_server(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    clock, sent = time.time, time.time()
    async with Worker([double, tell], address=engine.address):
        session = await engine.session()
        set_clock(monkeypatch, ahead_s)
        step = work_pb2.EagerStep(
            after_node_id="t1", handle="output", node_id="b", node_type="tell", input_handle="value"
        )
        step.timeout.CopyFrom(Duration(seconds=60))
        given = assignment("double", "0~flow:0:0:t1~1~n", eager_steps=[step])
        given.node_id = "t1"
        session.send(work_pb2.WorkResponse(assignments=[given], sent_at=at(sent)))
        await until(lambda: len(session.completions) == 2, "both have run")

    deadline = datetime.fromisoformat(session.completions[1].outputs[0].value_json.strip('"'))
    assert sent + 60 - 1 <= deadline.timestamp() <= clock() + 60 + 1


async def test_deadline_without_send_time_follows_clock_of_worker(engine: Engine, waiting: Waiting) -> None:
    async with Worker([waiting.node], address=engine.address):
        session = await engine.session()
        session.assign(waiting.node.type, "t1", deadline=at(time.time() + 0.1))
        await until(lambda: session.failures, "its time is over")
    assert session.failures[0].error.code == "TIMEOUT"
