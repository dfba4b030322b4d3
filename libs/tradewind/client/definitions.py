"""Definitions of flows, in every form that callers may have them in."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tradewind.client import json_text
from tradewind.client.messages import describe_value
from tradewind.flow import Flow, read_flow

Definition = Flow | Mapping[str, Any] | str | Path
"""A Flow, Weather Syntax as a dict or as JSON text, or the path of a JSON or YAML file."""

_FORMS = "a definition must be a Flow, Weather Syntax as a dict or JSON text, or the path of a JSON or YAML file"


def weather_json(definition: Definition) -> str:
    """Return the Weather Syntax of a flow as JSON text.

    Text that begins with `{` is JSON and is sent unchanged, for the server to judge; other text names a file. Raises
    ValueError for values that JSON cannot hold, FlowFileError for a file that is not a flow, OSError for a file that
    cannot be opened, TypeError for anything else.
    """
    if isinstance(definition, Flow):
        return definition.to_json()
    if isinstance(definition, Mapping):
        return json_text.encode(dict(definition))
    if isinstance(definition, str) and definition.lstrip().startswith("{"):
        return definition
    if not isinstance(definition, str | Path):
        raise TypeError(f"{_FORMS}; {describe_value(definition)}")
    return read_flow(definition).to_json()


def flow_id_and_definition(flow_id: str | Flow, definition: Definition | None) -> tuple[str, Definition]:
    """Return a flow's id and its definition; a Flow by itself is both. Raises TypeError for a missing definition."""
    if isinstance(flow_id, Flow):
        if definition is not None:
            raise TypeError(f"give a Flow alone, or a flow's id and its definition; got {flow_id!r} and a definition")
        return flow_id.flow_id, flow_id
    if definition is None:
        raise TypeError(f"{_FORMS}; none was given for {flow_id!r}")
    return flow_id, definition
