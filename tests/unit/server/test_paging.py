"""Page sizes and page tokens."""

import msgspec
import pytest

from tradewind.server.faults import InvalidInput
from tradewind.server.paging import page_position, page_size_of, page_token


class Position(msgspec.Struct, array_like=True):
    score: int
    id: str


@pytest.mark.parametrize(("requested", "size"), [(0, 50), (1, 1), (1000, 1000), (5000, 1000)])
def test_page_size_has_default_and_maximum(requested: int, size: int) -> None:
    assert page_size_of(requested) == size


def test_a_negative_page_size_is_a_violation() -> None:
    with pytest.raises(InvalidInput, match="page_size: must not be negative, is -1"):
        page_size_of(-1)


@pytest.mark.parametrize("position", [Position(2**53, "momentum"), Position(0, "ünïcode ?/+"), Position(0, "???>>>")])
def test_page_token_round_trips_its_position(position: Position) -> None:
    token = page_token(position)
    assert token.isascii()
    assert not set(token) & set("+/=")
    assert page_position(token, Position) == position


def test_empty_token_stands_for_first_page_and_end_of_list() -> None:
    assert page_position("", Position) is None
    assert page_token(None) == ""


@pytest.mark.parametrize(
    "token",
    ["nonsense!", "a", "AAAA", page_token("other"), page_token([1]), "é", "!!!!" + page_token(Position(1, "a"))],
)
def test_foreign_page_token_is_a_violation(token: str) -> None:
    with pytest.raises(InvalidInput, match="page_token: is not a page token of this list") as caught:
        page_position(token, Position)
    assert [violation.path for violation in caught.value.violations] == ["page_token"]
