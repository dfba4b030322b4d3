"""Definitions of flows from files and stdin."""

from tradewind.cli.parameters import read_stdin
from tradewind.flow import Flow, parse_flow, read_flow


def read_definition(file: str, name: str | None = None) -> Flow:
    """Read a flow from a JSON or YAML file, "-" for stdin.

    Raises OSError, or ValueError, which says where the file is not a valid flow.
    """
    if file == "-":
        return parse_flow(read_stdin(), name or "flow", "<stdin>")
    return read_flow(file, name)
