"""Forms, and the answers that fit them."""

import pytest

from tradewind.server.built_in.forms import form_faults, read_answer

HUGE = 10**400


@pytest.mark.parametrize("kind", ["number", "integer"])
@pytest.mark.parametrize("sign", [1, -1])
def test_number_beyond_float_range_is_a_fault(kind: str, sign: int) -> None:
    value = sign * HUGE
    field = {"name": "size", "type": kind}
    fault = f"must be of type {kind} within ±1.8e+308, is {str(value)[:100]}"

    assert read_answer({"fields": [field]}, {"values": {"size": value}})[1] == [(("values", "size"), fault)]
    choices = {**field, "choices": [1, value]}
    assert form_faults({"title": "?", "fields": [choices]}) == [(("fields", 0, "choices"), f"each {fault}")]


def test_an_answer_is_checked_by_the_types_of_its_fields() -> None:
    form = {"title": "?", "fields": [{"name": kind, "type": kind} for kind in ("text", "number", "integer", "boolean")]}
    assert form_faults(form) == []

    fitting = {"text": "a", "number": 1.5, "integer": 10**30, "boolean": True}
    assert read_answer(form, {"values": fitting})[1] == []
    wrong = {"text": HUGE, "number": True, "integer": 1.5, "boolean": 1}
    assert read_answer(form, {"values": wrong})[1] == [
        (("values", "text"), f"must be of type text, is {str(HUGE)[:100]}"),
        (("values", "number"), "must be of type number, is true"),
        (("values", "integer"), "must be of type integer, is 1.5"),
        (("values", "boolean"), "must be of type boolean, is 1"),
    ]
