"""Items of a batch from a file of JSON lines."""

from pathlib import Path

from tradewind.cli.parsing import read_stdin
from tradewind.flow.reading import read_json


def read_items(file: str) -> list[str]:
    """Return the parameters of each item as JSON text, ignoring empty lines; `-` reads stdin.

    Raises OSError, or ValueError that names the lines that are not JSON objects (at most ten of them).
    """
    name = "<stdin>" if file == "-" else file
    try:
        text = read_stdin() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{file} is not UTF-8 text: the byte at offset {error.start} is invalid") from None
    items: list[str] = []
    faults: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        fault = _fault(line)
        if fault:
            faults.append(f"line {number}: {fault}")
        items.append(line.strip())
    if faults:
        more = [f"and {len(faults) - 10} more"] if len(faults) > 10 else []
        raise ValueError("\n  ".join([f"{name} has lines that are not JSON objects:", *faults[:10], *more]))
    if not items:
        raise ValueError(f"{name} has no items: write one JSON object per line, {{}} for no parameters")
    return items


def _fault(line: str) -> str:
    try:
        value = read_json(line)
    except ValueError as error:
        return f"invalid JSON: {error}"
    return "" if isinstance(value, dict) else "not a JSON object"
