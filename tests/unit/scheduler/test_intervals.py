"""Durations of Weather Syntax."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tradewind.scheduler.domain.intervals import LONGEST_MS, format_duration, parse_duration


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        (0, 0),
        ("0", 0),
        (0.0, 0),
        (-0.0, 0),
        ("-0", 0),
        (60, 60_000),
        (60.0, 60_000),
        ("60", 60_000),
        (" 60 ", 60_000),
        (0.5, 500),
        (0.001, 1),
        (0.1 + 0.2, 300),
        ("0.25", 250),
        ("1.5h", 5_400_000),
        ("500ms", 500),
        ("5s", 5_000),
        ("5m", 300_000),
        ("1h", 3_600_000),
        ("1d", 86_400_000),
        (1e3, 1_000_000),
        ("3650d", LONGEST_MS),
        (315_360_000, LONGEST_MS),
    ],
)
def test_durations_are_parsed(value: object, milliseconds: int) -> None:
    assert parse_duration(value) == milliseconds


FORMS = 'give seconds as a number, or text such as "500ms", "5s", "5m", "1h" or "1d"'


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, f"must be a duration, is null; {FORMS}"),
        (True, f"must be a duration, is true; {FORMS}"),
        ([], f"must be a duration, is a list; {FORMS}"),
        ({}, f"must be a duration, is an object; {FORMS}"),
        ("", f'cannot read "" as a duration; {FORMS}'),
        ("soon", f'cannot read "soon" as a duration; {FORMS}'),
        ("5 m", f'cannot read "5 m" as a duration; {FORMS}'),
        ("5M", f'cannot read "5M" as a duration; {FORMS}'),
        ("1e3", f'cannot read "1e3" as a duration; {FORMS}'),
        ("5m\u0660", f'cannot read "5m\u0660" as a duration; {FORMS}'),
        ("\u0665s", f'cannot read "\u0665s" as a duration; {FORMS}'),
        ("9" * 5000, f'cannot read "{"9" * 60}..." as a duration; {FORMS}'),
        (math.nan, f"cannot read nan as a duration; {FORMS}"),
        (-5, "must not be negative, is -5"),
        (-0.25, "must not be negative, is -0.25"),
        ("-5s", 'must not be negative, is "-5s"'),
        (-math.inf, "must not be negative, is -inf"),
        (math.inf, "must be at most 3650d (ten years), is inf"),
        ("3651d", 'must be at most 3650d (ten years), is "3651d"'),
        (10**400, "must be at most 3650d (ten years), is a number of more than 30 digits"),
        (0.0005, "must be a whole number of milliseconds, is 0.0005"),
        (1e-12, "must be a whole number of milliseconds, is 1e-12"),
        ("0.5ms", 'must be a whole number of milliseconds, is "0.5ms"'),
    ],
)
def test_invalid_duration_is_refused_with_reason(value: object, message: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  the text is compared whole
        parse_duration(value)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("milliseconds", "written"), [(0, 0), (500, "500ms"), (1000, 1), (1001, "1001ms"), (60_000, 60)]
)
def test_duration_is_written_in_one_way(milliseconds: int, written: int | str) -> None:
    """A definition written in another way would be another revision."""
    assert format_duration(milliseconds) == written


@given(st.integers(0, LONGEST_MS))
def test_formatted_duration_parses_back(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@given(st.one_of(st.text(), st.floats(), st.integers(), st.booleans(), st.none()))
def test_any_value_is_parsed_or_refused(value: object) -> None:
    try:
        milliseconds = parse_duration(value)
    except ValueError:
        return
    assert 0 <= milliseconds <= LONGEST_MS
    if not isinstance(value, str) and value:
        assert milliseconds > 0, "only zero means once"
