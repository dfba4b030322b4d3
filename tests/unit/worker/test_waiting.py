"""Nodes that return a Wait, and go on."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tradewind.testing import NodeWait, run_node
from tradewind.worker import Context, Emit, Resumed, Wait, node
from tradewind.worker.errors import NodeFault

WHEN = datetime(2026, 3, 1, 9, tzinfo=UTC)
FORM = {"title": "Release it?"}


def returning(wait: Wait, outputs: list[str] | None = None) -> Any:
    @node("waiting", outputs=outputs or ["output"])
    async def waiting() -> Any:
        return wait

    return waiting


@pytest.mark.parametrize(
    ("wait", "reported"),
    [
        (Wait("paid"), NodeWait("paid", None, None, None, False)),
        (Wait("paid", until=WHEN), NodeWait("paid", WHEN, None, None, False)),
        (Wait(until=timedelta(minutes=1)), NodeWait("", None, timedelta(minutes=1), None, False)),
        (Wait(until=0.25), NodeWait("", None, timedelta(milliseconds=250), None, False)),
        (Wait(until="5m"), NodeWait("", None, timedelta(minutes=5), None, False)),
        (Wait(form=FORM, completes=True), NodeWait("answer", None, None, FORM, True)),
    ],
)
async def test_wait_is_reported_in_place_of_outputs(wait: Wait, reported: NodeWait) -> None:
    run = await run_node(returning(wait))
    assert (run.wait, run.outputs, run.error) == (reported, {}, None)


async def test_form_with_infinite_number_is_refused() -> None:
    run = await run_node(returning(Wait(form={"limit": float("inf")})))
    assert run.error is not None
    assert run.error.code == "INVALID_OUTPUT"
    assert "the form.limit is inf" in run.error.message


async def test_plain_function_can_wait() -> None:
    @node("plain")
    def plain(ctx: Context) -> str | Wait:
        return Wait("go") if ctx.resumed is None else ctx.resumed.payload["word"]

    first = await run_node(plain)
    assert first.wait is not None
    again = await run_node(plain, resumed=Resumed("go", {"word": "gone"}, "ann", WHEN))
    assert (again.output, again.wait) == ("gone", None)


async def test_node_is_told_what_ended_its_wait() -> None:
    received: list[Resumed | None] = []

    @node("resumes", outputs=["a", "b"])
    async def resumes(ctx: Context) -> Emit:
        received.append(ctx.resumed)
        return Emit(a=1)

    for resumed in (None, Resumed("go", [1], "ann", WHEN), Resumed("", None, "", WHEN)):
        await run_node(resumes, resumed=resumed)
        assert received[-1] == resumed
    assert received[-1] is not None
    assert received[-1].timed_out


@pytest.mark.parametrize(
    ("wait", "outputs", "message"),
    [
        (Wait("go", completes=True), ["a", "b"], "Wait(completes=True) emits by the only output handle of a node, but"),
        (Wait("go", form={"title": object()}), ["a"], "the form of the Wait is not JSON"),
    ],
)
async def test_wait_that_does_not_fit_fails_node(wait: Wait, outputs: list[str], message: str) -> None:
    error = (await run_node(returning(wait, outputs))).error
    assert error is not None
    assert error.code == "INVALID_OUTPUT"
    assert error.message.startswith(message)


def test_invalid_wait_is_refused() -> None:
    with pytest.raises(ValueError, match="needs a signal, a time or a form"):
        Wait()
    with pytest.raises(ValueError, match="needs a time with its zone"):
        Wait(until=datetime(2026, 3, 1))
    for never in (float("inf"), float("nan"), 1e306, 10**400, 1e20):
        with pytest.raises(ValueError, match="at most 10 000 years; to wait without end, leave it out"):
            Wait("go", until=never)
    with pytest.raises(ValueError, match=r'Wait\(until=.soon.\): "soon" is not a length of time'):
        Wait(until="soon")
    assert repr(Wait("go", until=5, completes=True)) == "Wait('go', until=5, completes=True)"


def test_wait_is_not_part_of_declared_output_schema() -> None:
    @node("typed")
    async def typed() -> int | Wait:
        return 1

    (output,) = typed.declaration().outputs
    assert json.loads(output.schema_json) == {"type": "integer"}


@pytest.mark.parametrize("signal", [30, timedelta(hours=1), b"paid", ""])
def test_invalid_signal_name_is_refused(signal: Any) -> None:
    with pytest.raises(ValueError, match=r"a signal is an identifier; a time is given as Wait\(until=\.\.\.\)"):
        Wait(signal)


def test_wait_that_cannot_be_encoded_fails_node() -> None:
    for wait in (Wait("pa\udcffid"), Wait(form={"title": "x" * 5_000_000}), Wait("x" * 5_000_000)):
        with pytest.raises(NodeFault, match="the node cannot wait for this") as caught:
            wait.encode(("output",))
        assert caught.value.code == "INVALID_OUTPUT"
