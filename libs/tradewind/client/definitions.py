"""Definitions of flows, in every form in which a person has them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tradewind.client import json_text
from tradewind.flow import Flow, read_flow

Definition = Flow | Mapping[str, Any] | str | Path
"""A Flow, Weather Syntax as a dict or as JSON text, or the path of a JSON or YAML file."""


def weather_json(definition: Definition) -> str:
    """Return the Weather Syntax of a flow as JSON text.

    Text that begins with `{` is JSON and goes as it is, for the server to judge; other text names a file. Raises
    ValueError for what JSON cannot say, FlowFileError for a file that holds no flow, OSError for one that cannot be
    opened.
    """
    if isinstance(definition, Flow):
        return definition.to_json()
    if isinstance(definition, Mapping):
        return json_text.encode(dict(definition))
    if isinstance(definition, str) and definition.lstrip().startswith("{"):
        return definition
    return read_flow(definition).to_json()
