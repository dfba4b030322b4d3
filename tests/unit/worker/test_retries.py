"""What a node can say about its next attempt."""

import asyncio
import math
import pickle
from datetime import timedelta
from typing import Any

import pytest

from tests.unit.worker.attempts import Bench
from tradewind.testing import run_node
from tradewind.worker import Fatal, RetryLater, node


class AccountClosed(Fatal):
    """No more orders go through."""


@node("order")
async def order(after: float | None = None, closed: bool = False) -> None:
    if closed:
        raise AccountClosed("account 7 is closed")
    if after is not None:
        raise RetryLater(after, "the exchange is full")
    raise ConnectionError("no line")


@pytest.mark.parametrize("after", [0, 2.5, 86_400])
async def test_retry_later_sets_retry_after(after: float) -> None:
    error = (await run_node(order, after=after)).error

    assert error is not None
    assert (error.code, error.type, error.message) == ("NODE_ERROR", "RetryLater", "the exchange is full")
    assert (error.retry_after, error.non_retryable) == (timedelta(seconds=after), False)
    assert error.traceback == ""


@pytest.mark.parametrize("named", [True, False])
async def test_retry_later_with_cause_has_traceback(named: bool) -> None:
    @node("order")
    def order() -> None:
        try:
            raise ConnectionError("no line")
        except ConnectionError as error:
            if named:
                raise RetryLater(timedelta(minutes=1)) from error
            raise RetryLater(timedelta(minutes=1))  # noqa: B904  as users write it

    error = (await run_node(order)).error

    assert error is not None
    assert (error.message, error.retry_after) == ("try again after 60 s", timedelta(minutes=1))
    assert "ConnectionError: no line" in error.traceback


async def test_retry_later_without_time_leaves_it_to_backoff() -> None:
    class Full(RetryLater):
        def __init__(self, exchange: str) -> None:
            self.exchange = exchange

    @node("order")
    async def order() -> None:
        raise Full("NYSE")

    async with Bench([order]) as bench:
        error = (await bench.run(bench.assignment("order"))).error

    assert error is not None
    assert (error.message, error.retry_after) == ("NYSE", None)
    assert error.type == "Full"


async def test_retry_later_whose_time_is_no_timedelta_leaves_it_to_backoff() -> None:
    class Throttled(RetryLater):
        after = 60  # type: ignore[assignment]

        def __init__(self) -> None:
            Exception.__init__(self, "the exchange throttles")

    @node("order")
    async def order() -> None:
        raise Throttled

    error = (await run_node(order)).error

    assert error is not None
    assert (error.message, error.retry_after) == ("the exchange throttles", None)


def test_retry_later_can_be_pickled() -> None:
    error = pickle.loads(pickle.dumps(RetryLater(90, "the exchange is full")))

    assert (type(error), error.after, str(error)) == (RetryLater, timedelta(seconds=90), "the exchange is full")


async def test_fatal_and_its_subclasses_are_not_retried() -> None:
    error = (await run_node(order, closed=True)).error

    assert error is not None
    assert (error.type, error.message) == ("AccountClosed", "account 7 is closed")
    assert (error.retry_after, error.non_retryable) == (None, True)
    assert "raise AccountClosed" in error.traceback


async def test_fatal_or_retry_later_in_exception_group_counts() -> None:
    @node("orders")
    async def orders(kind: str) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(order(closed=kind == "closed", after=60 if kind == "later" else None))

    closed, later = [(await run_node(orders, kind=kind)).error for kind in ("closed", "later")]

    assert closed is not None
    assert (closed.type, closed.message, closed.non_retryable) == ("AccountClosed", "account 7 is closed", True)
    assert "ExceptionGroup" in closed.traceback
    assert later is not None
    assert (later.type, later.retry_after) == ("RetryLater", timedelta(minutes=1))


async def test_group_of_retry_later_alone_waits_for_the_longest() -> None:
    @node("orders")
    async def orders(other: bool = False) -> None:
        inner = ExceptionGroup("limits", [RetryLater(5, "asked too often"), RetryLater("1m", "full")])
        raise ExceptionGroup("orders", [ConnectionError("no line") if other else RetryLater(2), inner])

    throttled, mixed = (await run_node(orders)).error, (await run_node(orders, config={"other": True})).error

    assert throttled is not None
    assert mixed is not None
    assert throttled.retry_after == timedelta(minutes=1)
    assert mixed.retry_after is None


async def test_message_of_exception_group_says_what_is_in_it() -> None:
    @node("orders")
    async def orders() -> None:
        inner = ExceptionGroup("accounts", [KeyError("b"), ValueError(), TypeError("d")])
        raise ExceptionGroup("orders", [ConnectionError("busy"), inner])

    error = (await run_node(orders)).error

    assert error is not None
    assert error.message == "orders (2 sub-exceptions): ConnectionError: busy; KeyError: 'b'; ValueError: (no message)"


async def test_exception_group_with_fatal_is_not_retried() -> None:
    @node("orders")
    async def orders(closed: bool) -> None:
        inner = ExceptionGroup("accounts", [AccountClosed("account 7 is closed") if closed else ValueError(7)])
        raise ExceptionGroup("orders", [ConnectionError("busy"), inner])

    closed, busy = [(await run_node(orders, closed=closed)).error for closed in (True, False)]

    assert closed is not None
    assert (closed.type, closed.non_retryable) == ("ExceptionGroup", True)
    assert busy is not None
    assert not busy.non_retryable


async def test_exception_is_reported_by_its_own_name_wherever_it_is_declared() -> None:
    class Errors:
        class NoMoney(Exception): ...

    @node("order")
    async def order(several: bool) -> None:
        raise ExceptionGroup("orders", [Errors.NoMoney("7"), Errors.NoMoney("8")]) if several else Errors.NoMoney("7")

    single, group = [(await run_node(order, several=several)).error for several in (False, True)]

    assert single is not None
    assert single.type == "NoMoney"
    assert group is not None
    assert group.message == "orders (2 sub-exceptions): NoMoney: 7; NoMoney: 8"


async def test_end_of_an_iterator_in_a_plain_function_is_reported_as_such() -> None:
    @node("first")
    def first(prices: list[float]) -> float:
        return next(iter(prices))

    error = (await run_node(first, prices=[])).error

    assert error is not None
    assert error.type == "StopIteration"
    assert error.traceback.splitlines()[-1] == "StopIteration"


async def test_other_exception_leaves_retry_to_backoff() -> None:
    error = (await run_node(order)).error

    assert error is not None
    assert (error.type, error.retry_after, error.non_retryable) == ("ConnectionError", None, False)


async def test_missing_or_invalid_input_is_not_retried() -> None:
    needs = node("needs")(lambda value: value)
    async with Bench([needs]) as bench:
        missing = (await bench.run(bench.assignment("needs"))).error
        unknown = (await bench.run(bench.assignment("needs", "t2", config_json='{"valeu": 1}'))).error

    assert missing is not None
    assert (missing.code, missing.non_retryable) == ("INPUT_MISSING", True)
    assert unknown is not None
    assert (unknown.type, unknown.non_retryable) == ("InvalidInput", True)


@pytest.mark.parametrize(
    ("after", "seconds"), [("5s", 5), ("500ms", 0.5), (" 1h", 3600), ("5", 5), ("365d", 365 * 86_400)]
)
def test_retry_later_accepts_duration_text(after: str, seconds: float) -> None:
    assert RetryLater(after).after == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "after",
    [
        -1,
        -0.001,
        366 * 86_400,
        math.nan,
        math.inf,
        -math.inf,
        timedelta(days=-1),
        timedelta.max,
        "-5s",
        "soon",
        None,
        [],
    ],
)
def test_retry_later_refuses_invalid_duration(after: Any) -> None:
    with pytest.raises(ValueError, match='give seconds, "5s" or a timedelta from 0 to 365 days'):
        RetryLater(after)
