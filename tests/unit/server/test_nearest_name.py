"""Suggestions for mistyped names."""

import pytest

from tradewind.server.nearest_name import NearestName

MANY = [f"moving_average_{i:04}" for i in range(5_000)] + ["model", "Report"]


@pytest.mark.parametrize("names", [["feed", "model", "Report"], MANY], ids=["few names", "many names"])
@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("modle", "model"),
        ("odel", "model"),
        ("REPORT", "Report"),
        ("zzz", None),
        ("", None),
        ("m" * 129, None),
    ],
)
def test_nearest_name_is_found_despite_typos_and_case(names: list[str], word: str, name: str | None) -> None:
    assert NearestName(names).find(word) == name


def test_most_similar_of_many_similar_names_is_found() -> None:
    assert NearestName(MANY).find("moving_avrage_0815") == "moving_average_0815"


def test_hint_names_the_nearest_or_gives_the_default() -> None:
    names = NearestName(["model"])
    assert names.hint("modle") == '; did you mean "model"?'
    assert names.hint("x", "; there is one") == "; there is one"
    assert NearestName([]).hint("x") == ""


def test_number_of_comparisons_is_bounded() -> None:
    names = NearestName(MANY)
    found = [names.find("modle") for _ in range(60)]
    assert found == ["model"] * 39 + [None] * 21, "39 looks at 5002 names make 200 000"
