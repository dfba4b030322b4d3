"""Reads flows from JSON and YAML; errors name the file and line.

YAML is imported only when something is read: programs that never read a file, as workers, import this as well.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tradewind.flow.builder import Flow
from tradewind.flow.errors import FlowError, FlowFileError


def read_flow(file: str | Path, flow_id: str | None = None) -> Flow:
    """Read a flow from a file: `.yaml` and `.yml` as YAML, `.json` as JSON, others depending on how they begin.

    Its id is `flow_id`, or else the file's name without its suffix. Raises FlowFileError if the content is not a flow,
    OSError if the file cannot be opened.
    """
    path = Path(file)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise FlowFileError(str(file), f"is not UTF-8 text: the byte at offset {error.start} is invalid") from None
    language = {".json": "json", ".yaml": "yaml", ".yml": "yaml"}.get(path.suffix.lower())
    return _read(text, flow_id or path.stem, str(file), language)


def parse_flow(text: str, flow_id: str, file: str = "<text>") -> Flow:
    """Read a flow from JSON text (if it begins with a brace or bracket) or YAML; errors call it `file`.

    Raises FlowFileError if the text is not a flow.
    """
    return _read(text, flow_id, file, None)


def _read(text: str, flow_id: str, file: str, language: str | None) -> Flow:
    if not text.strip():
        raise FlowFileError(file, "is empty; a flow is an object with interval, nodes and edges")
    if language is None:
        language = "json" if text.lstrip().startswith(("{", "[")) else "yaml"
    parse: Callable[[str, str], Any] = _parse_json if language == "json" else _parse_yaml
    try:
        return Flow.from_weather(flow_id, parse(text, file))
    except FlowFileError:
        raise
    except FlowError as error:
        from tradewind.flow.yaml_text import place_of

        place = place_of(text, error.path)
        raise FlowFileError(file, error.message, line=place.line, column=place.column, path=error.path) from None


def _parse_json(text: str, file: str) -> Any:
    try:
        return read_json(text)
    except json.JSONDecodeError as error:
        error = _named_trailing_comma(error)
        raise FlowFileError(file, f"is not JSON: {error.msg}", line=error.lineno, column=error.colno) from None
    except DuplicateKey as duplicate:
        from tradewind.flow.yaml_text import place_of_duplicate_key

        place = place_of_duplicate_key(text)
        raise FlowFileError(file, str(duplicate), line=place.line, column=place.column) from None
    except ValueError as error:
        # NaN and infinities, numbers that are too long, or what is nested too deeply.
        raise FlowFileError(file, f"is not JSON: {error}") from None


def _named_trailing_comma(error: json.JSONDecodeError) -> json.JSONDecodeError:
    """Return the error as Python 3.13 words it and places it, if a comma before a closing bracket caused it."""
    before, closing = error.doc[: error.pos].rstrip(), error.doc[error.pos : error.pos + 1]
    if not before.endswith(",") or closing not in ("]", "}"):
        return error
    kind = "array" if closing == "]" else "object"
    return json.JSONDecodeError(f"Illegal trailing comma before end of {kind}", error.doc, len(before) - 1)


def _parse_yaml(text: str, file: str) -> Any:
    from tradewind.flow.yaml_text import YamlFault, load

    try:
        return load(text)
    except YamlFault as error:
        raise FlowFileError(file, error.message, line=error.place.line, column=error.place.column) from None


class DuplicateKey(ValueError):
    """A key occurs twice in one object."""


def read_json(text: str) -> Any:
    """Read JSON by the standard, which has no NaN and no Infinity. Raises ValueError, DuplicateKey for a key twice."""
    try:
        return json.loads(text, object_pairs_hook=_distinct_keys, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _distinct_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise DuplicateKey(f'"{duplicate}" occurs twice in one object')
    return values


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
