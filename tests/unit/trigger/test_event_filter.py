"""Filters over the payload of an event."""

import json
from typing import Any

import pytest

from tradewind.server.schedules.event_filter import EventFilter, FilterFault

PAYLOAD = {
    "symbol": "AAPL",
    "price": 101.5,
    "urgent": True,
    "note": None,
    "order": {"side": "buy", "lines": [{"n": 1}], "size": 100},
}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"symbol": "AAPL"},
        {"symbol": "AAPL", "price": {"$gt": 100}},
        {"price": {"$gte": 101.5, "$lt": 102}},
        {"price": {"$lte": 101.5}},
        {"order.side": "buy", "order.size": 100.0},
        {"symbol": {"$in": ["MSFT", "AAPL"]}},
        {"symbol": {"$nin": ["MSFT"]}},
        {"symbol": {"$ne": "MSFT"}},
        {"symbol": {"$gt": "AAA"}},
        {"missing": {"$ne": 1}},
        {"missing": {"$exists": False}, "note": {"$exists": True}},
        {"note": None},
        {"urgent": True},
        {"$or": [{"price": {"$lt": 1}}, {"urgent": True}]},
        {"$and": [{"price": {"$gt": 1}}, {"urgent": True}]},
        {"$not": {"symbol": "MSFT"}},
    ],
)
def test_filter_matches_payload(spec: dict[str, Any]) -> None:
    assert EventFilter(json.dumps(spec)).matches(PAYLOAD)


@pytest.mark.parametrize(
    "spec",
    [
        {"symbol": "MSFT"},
        {"symbol": "AAPL", "price": {"$gt": 102}},
        {"price": "101.5"},
        {"price": {"$gt": "1"}},
        {"symbol": {"$gt": 1}},
        {"urgent": 1},
        {"missing": None},
        {"missing": {"$in": [None]}},
        {"symbol.length": 4},
        {"symbol.A": "A"},
        {"price.cents": 50},
        {"order": "buy"},
        {"order.lines.n": 1},
        {"$or": [{"price": {"$lt": 1}}, {"urgent": False}]},
        {"$and": [{"price": {"$gt": 1}}, {"urgent": False}]},
        {"$not": {}},
    ],
)
def test_filter_does_not_match_payload(spec: dict[str, Any]) -> None:
    assert not EventFilter(json.dumps(spec)).matches(PAYLOAD)


def test_empty_filter_matches_everything() -> None:
    assert EventFilter("").matches({})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ('{"a": NaN}', "is not JSON: NaN is not a JSON number"),
        ("[]", 'must be an object such as {"symbol": "AAPL"}, is a list'),
        ('{"a": {"$near": 1}}', "a.$near: is not an operator; use $eq"),
        ('{"a": {"$gt": 1, "b": 2}}', "a.b: is not an operator"),
        ('{"a": {"b": 1}}', "a: must be text, a number, true, false or null; name an inner field by its path"),
        ('{"a": [1]}', "a: must be text"),
        ('{"a": {"$in": 1}}', "a.$in: must be a list of at most 256 values"),
        (json.dumps({"a": {"$in": [1] * 257}}), "a.$in: must be a list of at most 256 values"),
        ('{"a": {"$nin": [1, [2]]}}', "a.$nin: must be text, a number, true, false or null"),
        ('{"a": {"$gt": null}}', "a.$gt: must be a number or text, is null"),
        ('{"a": {"$exists": 1}}', "a.$exists: must be true or false"),
        ('{"$or": {"a": 1}}', "$or: must be a list of filters"),
        ('{"$or": []}', "$or: must be a list of filters"),
        ('{"$where": "1"}', "$where: is not supported here"),
        ('{"a..b": 1}', "a..b: is not a path"),
        ('{"$or": [{"$not": []}]}', "$or[0].$not: must be an object"),
        ('{"$not":' * 5 + "{}" + "}" * 5, "$not.$not.$not.$not.$not: is nested too deeply: at most 5 levels"),
        ('{"$and":[' * 5 + "{}" + "]}" * 5, "$and[0].$and[0].$and[0].$and[0].$and[0]: is nested too deeply"),
        (json.dumps({f"f{n}": n for n in range(65)}), "f64: there are too many conditions: at most 64"),
        (json.dumps({"a": "x" * 4096}), "must have at most 4096 bytes, has 4105"),
    ],
)
def test_invalid_filter_is_rejected_with_the_path_of_its_fault(text: str, message: str) -> None:
    with pytest.raises(FilterFault) as fault:
        EventFilter(text)

    assert str(fault.value).startswith(message)
