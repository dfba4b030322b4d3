"""The page on sub-flows: its flow in Python equals its flow in JSON, and its numbers are the limits."""

import json
import re
from pathlib import Path
from typing import Any

from tradewind.flow import Flow, Retry, Timeouts
from tradewind.server.built_in import BUILT_IN, MAX_DEPTH
from tradewind.server.built_in.flows import MAX_INPUT_BYTES

PAGE = (Path(__file__).parents[2] / "docs" / "subflows.md").read_text()


def test_python_flow_of_the_page_equals_its_json() -> None:
    built: dict[str, Any] = {"Flow": Flow, "Retry": Retry, "Timeouts": Timeouts}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0], built)
    node = next(each for each in built["report"].to_weather()["nodes"] if each["id"] == "cleaned")
    assert BUILT_IN["flow"].faults(node["config"]) == []
    (written,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert json.loads(written) == {key: value for key, value in node.items() if key != "timeouts"}


def test_numbers_of_the_page_are_the_limits() -> None:
    assert f"up to {MAX_DEPTH} deep" in PAGE
    assert f"may have {MAX_INPUT_BYTES // 1024**2} MiB" in PAGE.replace("\n", " ")
