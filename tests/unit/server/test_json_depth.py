"""How deeply JSON may be nested."""

import json

import pytest

from tradewind.server.json_depth import check_depth

OPEN = "[" * 600


@pytest.mark.parametrize(
    "text",
    [
        "[" * 500 + "]" * 500,
        '{"a":' * 500 + "1" + "}" * 500,
        "[" + ",".join(['{"a": []}'] * 1000) + "]",
        json.dumps(OPEN),
        json.dumps([OPEN, f'"{OPEN}', f'\\"{OPEN}', f"{OPEN}\\", {f'{OPEN}\\\\"': f"é{OPEN}\n"}]),
    ],
)
def test_500_levels_are_accepted_and_brackets_within_strings_do_not_count(text: str) -> None:
    json.loads(text)
    check_depth(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 501 + "]" * 501,
        '{"a":' * 501 + "1" + "}" * 501,
        '["\\\\", ' + "[" * 500 + '"]"' + "]" * 501,
        '{"a\\"": ' + "[" * 500 + "]" * 500 + "}",
    ],
)
def test_more_than_500_levels_are_rejected(text: str) -> None:
    json.loads(text)
    with pytest.raises(RecursionError, match="nested more than 500 levels deep"):
        check_depth(text)
